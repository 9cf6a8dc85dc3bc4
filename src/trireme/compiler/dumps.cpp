#include "trireme/compiler/dumps.h"

#include <cctype>
#include <string>
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

}  // namespace

void remove_dumps(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    entries.push_back(i->path());
  error.clear();
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (fs::is_directory(path) && is_role(name)) {
      remove_dumps(path);
      if (fs::is_empty(path)) fs::remove(path, error);
    } else if (fs::is_regular_file(path) && is_dump(name)) {
      fs::remove(path, error);
    }
    if (error) fail("cannot remove {}, which an earlier run has dumped: {}", path.string(), error.message());
  }
}

}  // namespace trireme::compiler
