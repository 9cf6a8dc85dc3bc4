#include "trireme/cli/pass_listings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace fs = std::filesystem;
namespace {

// By "12-name.txt": name to file, of one folder.
std::map<std::string, fs::path> named(const fs::path& folder) {
  std::map<std::string, fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().stem().string();
    const std::size_t dash = name.find('-');
    if (entry.path().extension() == ".txt" && dash != std::string::npos)
      found.emplace(name.substr(dash + 1), entry.path());
  }
  return found;
}

}  // namespace

PassListings::PassListings() {
  std::string name = (fs::temp_directory_path() / "trireme-passes-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("could not make a folder in {}", fs::temp_directory_path().string());
  folder_ = name;
}

PassListings::~PassListings() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string PassListings::after(const std::string& pass, const std::string& program,
                                const std::vector<std::string>& programs, const std::string& role) const {
  std::string folder = role;
  std::erase(folder, ',');
  std::replace(folder.begin(), folder.end(), ' ', '-');
  std::map<std::string, fs::path> files = named(folder_ / folder);
  files.merge(named(folder_));
  // Files of programs are named "step-collectives"; those of the module "partition".
  const auto program_of = [&](const std::string& name) {
    for (const std::string& known : programs)
      if (name.starts_with(known + "-")) return known;
    return std::string();
  };
  std::vector<std::pair<std::string, fs::path>> passes;
  for (const auto& [name, file] : files)
    if (program_of(name) == program) passes.emplace_back(name.substr(program.empty() ? 0 : program.size() + 1), file);
  std::sort(passes.begin(), passes.end(),
            [](const auto& a, const auto& b) { return a.second.filename() < b.second.filename(); });
  std::vector<std::string> names;
  for (const auto& [name, file] : passes) {
    if (name == pass) {
      std::ifstream in(file);
      return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    names.push_back(name);
  }
  const auto near = nearest(pass, names);
  refuse("--after {}: no such pass ran{}; these did: {}", pass, near ? "; did you mean " + *near + "?" : "",
         fmt::join(names, ", "));
}

}  // namespace trireme::cli
