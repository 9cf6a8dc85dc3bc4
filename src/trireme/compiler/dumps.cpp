#include "trireme/compiler/dumps.h"

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::compiler {
namespace {

namespace fs = std::filesystem;

// "03-fuse.txt"
bool is_dump(const std::string& name) {
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != std::string::npos && digits >= 2 && name[digits] == '-' && name.ends_with(".txt");
}

// "stage-0": a word and a number (compiler/role_name.h).
bool is_role(const std::string& name) {
  const std::size_t dash = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz");
  return dash > 0 && dash + 1 < name.size() && name[dash] == '-' &&
         name.find_first_not_of("0123456789", dash + 1) == std::string::npos;
}

// Files under the names of dumps, those of roles' folders among them.
std::vector<fs::path> dumps_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (fs::is_directory(i->path()) && is_role(name)) {
      const std::vector<fs::path> inside = dumps_in(i->path());
      found.insert(found.end(), inside.begin(), inside.end());
    } else if (fs::is_regular_file(i->path()) && is_dump(name)) {
      found.push_back(i->path());
    }
  }
  return found;
}

}  // namespace

void remove_dumps(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(folder, unknown) && !fs::is_directory(folder, unknown))
    refuse("--dump-passes={}: that is there, and is no folder; name another", folder.string());
  const std::vector<fs::path> dumps = dumps_in(folder);
  // All are looked at before one is removed.
  for (const fs::path& path : dumps) {
    constexpr std::string_view kModule = "module {", kProgram = "program ";  // as they print
    std::string first(kProgram.size(), '\0');
    std::ifstream in(path, std::ios::binary);
    in.read(first.data(), std::ssize(first));
    if (in.gcount() > 0 && first != kModule && first != kProgram)
      refuse("--dump-passes={}: {} is there, and is no dump of trireme; name another folder", folder.string(),
             path.string());
  }
  for (const fs::path& path : dumps) {
    std::error_code error;
    fs::remove(path, error);
    const fs::path role = path.parent_path();
    if (!error && fs::is_empty(role) && !fs::equivalent(role, folder)) fs::remove(role, error);
    if (error) fail("cannot remove {}, which an earlier run has dumped: {}", path.string(), error.message());
  }
}

}  // namespace trireme::compiler
