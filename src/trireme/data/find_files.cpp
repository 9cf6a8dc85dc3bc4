#include "trireme/data/find_files.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "trireme/core/error.h"

namespace trireme::data {

namespace fs = std::filesystem;

std::vector<std::string> find_files(const std::string& pattern, std::string_view key) {
  std::error_code ignored;
  if (fs::is_directory(pattern, ignored))
    refuse("{}: {} is a folder; name its files with a pattern such as \"{}/*.bin\"", key, pattern, pattern);
  if (fs::exists(pattern, ignored)) return {pattern};
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 || paths.empty())
    refuse("{}: {} {}", key, is_glob(pattern) ? "no file matches" : "there is no file", pattern);
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_glob(const std::string& pattern) { return pattern.find_first_of("*?[{") != std::string::npos; }

namespace {

WeightedPattern parse_weight(const std::string& text, std::string_view key) {
  std::error_code ignored;
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || fs::exists(text, ignored)) return {text, std::nullopt};
  double weight = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + at + 1, end, weight);
  if (stop == text.data() + at + 1) return {text, std::nullopt};  // no number: part of a name
  if (error != std::errc() || stop != end || !std::isfinite(weight) || weight <= 0)
    refuse("{}: the mixing weight of \"{}\" must be a number above 0, such as @0.7", key, text);
  return {text.substr(0, at), weight};
}

}  // namespace

std::vector<WeightedPattern> parse_weights(std::span<const std::string> texts, std::string_view key) {
  std::vector<WeightedPattern> patterns;
  for (const std::string& text : texts) {
    patterns.push_back(parse_weight(text, key));
    if (const bool weighted = patterns.back().weight.has_value(); weighted != patterns.front().weight.has_value())
      refuse("{}: \"{}\" has {} mixing weight and others have {}; give one to each or to none", key, text,
             weighted ? "a" : "no", weighted ? "none" : "one");
  }
  return patterns;
}

}  // namespace trireme::data
