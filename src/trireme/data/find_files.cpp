#include "trireme/data/find_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "trireme/core/error.h"

namespace trireme::data {

namespace fs = std::filesystem;

std::vector<std::string> find_files(const std::string& pattern, const std::string& key) {
  std::error_code ignored;
  if (fs::is_directory(pattern, ignored))
    refuse("{}: {} is a folder; name its files with a pattern such as \"{}/*.bin\"", key, pattern, pattern);
  if (fs::exists(pattern, ignored)) return {pattern};
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 || paths.empty()) {
    const bool is_pattern = pattern.find_first_of("*?[{") != std::string::npos;
    refuse("{}: {} {}", key, is_pattern ? "no file matches" : "there is no file", pattern);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace trireme::data
