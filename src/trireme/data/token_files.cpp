#include "trireme/data/token_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "token files are read in place");

// Tokens looked at before training starts; the rest is checked as it is read.
constexpr std::int64_t kCheckedAhead = 1 << 20;

struct Format {
  TokenType type = TokenType::u16;
  std::size_t header = 0;  // bytes before the first token
};

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// llm.c: a header of 256 words (magic, version, tokens), then uint16 (version 1) or uint32 (version 7) tokens.
std::optional<Format> llmc_format(std::span<const std::byte> bytes, const std::string& path) {
  constexpr std::size_t header = 1024;
  constexpr std::uint32_t magic_u16 = 20240520;
  constexpr std::uint32_t magic_u32 = 20240801;
  if (bytes.size() < header) return std::nullopt;
  const auto magic = load<std::uint32_t>(bytes, 0);
  const auto version = load<std::uint32_t>(bytes, 4);
  std::optional<TokenType> type;
  if (magic == magic_u16 && version == 1) type = TokenType::u16;
  if (magic == magic_u32 && version == 7) type = TokenType::u32;
  if (!type) return std::nullopt;
  const std::uint64_t tokens = load<std::uint32_t>(bytes, 8);
  if (bytes.size() != header + tokens * static_cast<std::size_t>(*type))
    refuse("{}: its header promises {} tokens, but the file has {} bytes of them", path, tokens, bytes.size() - header);
  return Format{*type, header};
}

// Megatron: tokens in x.bin, their type and the documents' places in x.idx.
std::optional<Format> megatron_format(const std::string& path) {
  constexpr std::array<char, 9> magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
  const fs::path index = fs::path(path).replace_extension(".idx");
  std::error_code ignored;
  if (fs::path(path).extension() != ".bin" || !fs::exists(index, ignored)) return std::nullopt;
  const MappedFile file(index.string());
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < 18 || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    refuse("{}: not an index of Megatron's format, though it lies beside {}", index.string(), path);
  const auto code = load<std::uint8_t>(bytes, 17);
  switch (code) {
    case 1: return Format{TokenType::u8, 0};
    case 4: return Format{TokenType::u32, 0};  // int32, never negative
    case 8: return Format{TokenType::u16, 0};
    default: refuse("{}: tokens of type code {} are not supported (uint8, int32 and uint16 are)", index.string(), code);
  }
}

Format format_of(std::span<const std::byte> bytes, const std::string& path, const std::string& token_type,
                 std::int64_t vocab) {
  if (const auto format = llmc_format(bytes, path)) return *format;
  if (const auto format = megatron_format(path)) return *format;
  if (token_type == "uint16") return {TokenType::u16, 0};
  if (token_type == "uint32") return {TokenType::u32, 0};
  return {vocab <= 65536 ? TokenType::u16 : TokenType::u32, 0};
}

bool has_weight(const std::string& pattern) {
  const std::size_t at = pattern.rfind('@');
  if (at == std::string::npos || at + 1 == pattern.size()) return false;
  double weight = 0;
  const char* end = pattern.data() + pattern.size();
  return std::from_chars(pattern.data() + at + 1, end, weight).ptr == end;
}

std::vector<std::string> expand(const std::string& pattern, const std::string& key) {
  std::error_code ignored;
  if (fs::is_directory(pattern, ignored))
    refuse("{}: {} is a folder; name its files with a pattern such as \"{}/*.bin\"", key, pattern, pattern);
  if (fs::exists(pattern, ignored)) return {pattern};
  if (has_weight(pattern))
    refuse("not available in this version: {} = \"{}\" (a mixing weight); name files without @", key, pattern);
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

}  // namespace

TokenStream open_token_files(std::span<const std::string> patterns, const std::string& token_type, std::int64_t vocab,
                             const std::string& key, int* files) {
  TokenStream stream;
  int count = 0;
  for (const std::string& pattern : patterns)
    for (const std::string& path : expand(pattern, key)) {
      auto file = std::make_shared<const MappedFile>(path);
      const Format format = format_of(file->bytes(), path, token_type, vocab);
      const auto bytes = file->bytes().subspan(format.header);
      if (bytes.empty()) refuse("{}: {} holds no tokens", key, path);
      if (bytes.size() % static_cast<std::size_t>(format.type) != 0)
        refuse("{}: {} has {} bytes, no whole number of {}-byte tokens (data.token_type = \"{}\")", key, path,
               bytes.size(), static_cast<int>(format.type), token_type);
      const std::int64_t first = stream.size();
      stream.append(path, file, bytes, format.type);
      if (const auto wrong = stream.beyond(vocab, first, std::min(stream.size(), first + kCheckedAhead)))
        refuse("{}", *wrong);
      ++count;
    }
  if (files != nullptr) *files = count;
  return stream;
}

}  // namespace trireme::data
