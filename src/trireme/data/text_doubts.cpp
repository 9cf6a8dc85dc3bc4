#include "trireme/data/text_doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "trireme/data/data_config.h"
#include "trireme/data/find_files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// Why a file's bytes are hardly what is to be learned; empty: they look like text.
std::string what_else(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4096> bytes{};
  file.read(bytes.data(), bytes.size());
  const std::string_view start(bytes.data(), static_cast<std::size_t>(file.gcount()));
  using namespace std::string_view_literals;
  constexpr auto kKinds = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"\x1f\x8b"sv, "compressed by gzip: unpack it"},
      {"\x28\xb5\x2f\xfd"sv, "compressed by zstd: unpack it"},
      {"\xfd\x37\x7a\x58\x5a"sv, "compressed by xz: unpack it"},
      {"BZh"sv, "compressed by bzip2: unpack it"},
      {"PK\x03\x04"sv, "a zip archive: unpack it"},
      {"\x93NUMPY"sv, "an array of NumPy"},
      {"PAR1"sv, "a Parquet file: write its text as JSON lines"},
      {"\xff\xfe"sv, "text in UTF-16: convert it to UTF-8"},
      {"\xfe\xff"sv, "text in UTF-16: convert it to UTF-8"},
  });
  for (const auto& [magic, kind] : kKinds)
    if (start.starts_with(magic)) return std::string(kind);
  return start.find('\0') == std::string_view::npos ? "" : "no text";
}

// What a list names, once weights and globs are resolved.
std::vector<fs::path> named(std::span<const std::string> texts, const std::string& key) {
  std::vector<fs::path> all;
  for (const WeightedPattern& pattern : parse_weights(texts, key)) {
    if (pattern.pattern == kCxxHeaders) continue;
    std::error_code unknown;
    const bool there = fs::exists(pattern.pattern, unknown);
    for (const std::string& one : there ? std::vector<std::string>{pattern.pattern} : find_files(pattern.pattern, key))
      all.push_back(fs::weakly_canonical(one, unknown));
  }
  return all;
}

// Whether one is the other, or below it.
bool is_within(const fs::path& inner, const fs::path& outer) {
  const auto [end, other] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end() || (std::next(end) == outer.end() && end->empty());
}

std::string first_of(const std::vector<fs::path>& paths) {
  return paths.size() == 1 ? paths.front().string()
                           : fmt::format("{} and {} more", paths.front().string(), paths.size() - 1);
}

void add_kinds(const std::vector<fs::path>& paths, std::string_view key, const OptionNames& names,
               std::vector<std::string>& doubts) {
  std::map<std::string, std::vector<fs::path>> kinds;
  for (const fs::path& path : paths)
    if (std::error_code unknown; fs::is_regular_file(path, unknown))
      if (const std::string kind = what_else(path); !kind.empty()) kinds[kind].push_back(path);
  for (const auto& [kind, files] : kinds)
    doubts.push_back(fmt::format(
        "{}: the bytes of {} are read as they are, and look like {}{}", key, first_of(files), kind,
        kind.find(':') == std::string::npos ? fmt::format(": for token ids name it in {}", names.tokens) : ""));
}

}  // namespace

std::vector<std::string> text_doubts(std::span<const std::string> text, std::span<const std::string> eval,
                                     const OptionNames& names) {
  std::vector<std::string> doubts;
  const std::vector<fs::path> trained = named(text, std::string(names.text));
  const std::vector<fs::path> held_out = named(eval, std::string(names.eval));
  add_kinds(trained, names.text, names, doubts);
  add_kinds(held_out, names.eval, names, doubts);
  std::set<fs::path> seen;
  std::vector<fs::path> again;
  for (const fs::path& path : trained)
    if (!seen.insert(path).second) again.push_back(path);
  if (!again.empty())
    doubts.push_back(fmt::format(
        "{} names {} more than once, and it is read once; a mixing weight (\"path@2\") gives it more of the samples",
        names.text, first_of(again)));
  std::vector<fs::path> both;
  for (const fs::path& path : held_out)
    if (std::any_of(trained.begin(), trained.end(),
                    [&](const fs::path& other) { return is_within(path, other) || is_within(other, path); }))
      both.push_back(path);
  if (!both.empty())
    doubts.push_back(fmt::format("{} and {} both have {}: what is evaluated is trained on, and not held out",
                                 names.eval, names.text, first_of(both)));
  return doubts;
}

}  // namespace trireme::data
