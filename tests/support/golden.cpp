#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) fail("cannot read {}", file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

GoldenOptions options_of(const std::string& text) {
  GoldenOptions options;
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with("//")) break;
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos && line.find(' ', 3) == std::string::npos)
      options[std::string(trim(line.substr(2, equals - 2)))] = std::string(trim(line.substr(equals + 1)));
  }
  return options;
}

std::vector<Golden> goldens(const std::string& folder) {
  const std::filesystem::path root = std::filesystem::path(source_dir()) / "tests" / "golden" / folder;
  std::vector<Golden> found;
  std::error_code none;  // a pass without a folder: its test says so
  for (const auto& entry : std::filesystem::directory_iterator(root, none)) {
    const std::string file = entry.path().filename().string();
    constexpr std::string_view suffix = ".in.txt";
    if (!file.ends_with(suffix)) continue;
    const std::string name = file.substr(0, file.size() - suffix.size());
    found.push_back({name, entry.path(), root / (name + ".out.txt")});
  }
  std::sort(found.begin(), found.end(), [](const Golden& a, const Golden& b) { return a.name < b.name; });
  return found;
}

void check_golden(const Golden& golden,
                  const std::function<std::string(const std::string&, const GoldenOptions&)>& transform) {
  const std::string text = read_file(golden.in);
  std::string result;
  try {
    result = transform(text, options_of(text));
  } catch (const Error& e) {
    result = "error: " + e.message() + "\n";
  }
  const char* update = std::getenv("UPDATE_GOLDENS");
  if (update != nullptr && std::string_view(update) == "1") {
    std::ofstream(golden.out) << result;
    return;
  }
  EXPECT_EQ(result, read_file(golden.out)) << golden.out << " (UPDATE_GOLDENS=1 rewrites it)";
}

std::string take(GoldenOptions& options, const std::string& key, const std::string& fallback) {
  const auto found = options.find(key);
  if (found == options.end()) return fallback;
  std::string value = found->second;
  options.erase(found);
  return value;
}

}  // namespace trireme::testing
