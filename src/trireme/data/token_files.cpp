#include "trireme/data/token_files.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"
#include "trireme/data/find_files.h"
#include "trireme/data/megatron_index.h"
#include "trireme/data/token_layout.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "token files are read in place");

// Tokens looked at before training starts; the rest is checked as it is read.
constexpr std::int64_t kCheckedAhead = 1 << 20;

struct Format {
  TokenType type = TokenType::u16;
  std::size_t header = 0;  // bytes before the first token
  bool raw = false;        // the file does not say what its tokens are
};

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

constexpr std::uint32_t kMagicU16 = 20240520;
constexpr std::uint32_t kMagicU32 = 20240801;

// llm.c: a header of 256 words (magic, version, tokens), then uint16 (version 1) or uint32 (version 7) tokens.
std::optional<Format> llmc_format(std::span<const std::byte> bytes, const std::string& path) {
  constexpr std::size_t header = 1024;
  if (bytes.size() < header) return std::nullopt;
  const auto magic = load<std::uint32_t>(bytes, 0);
  const auto version = load<std::uint32_t>(bytes, 4);
  std::optional<TokenType> type;
  if (magic == kMagicU16 && version == 1) type = TokenType::u16;
  if (magic == kMagicU32 && version == 7) type = TokenType::u32;
  if (!type && (magic == kMagicU16 || magic == kMagicU32))
    refuse("{}: version {} of llm.c's format is not known (1 is, with uint16, and 7, with uint32)", path, version);
  if (!type) return std::nullopt;
  const std::uint64_t tokens = load<std::uint32_t>(bytes, 8);
  if (bytes.size() != header + tokens * static_cast<std::size_t>(*type))
    refuse("{}: its header promises {} tokens, but the file has {} bytes of them", path, tokens, bytes.size() - header);
  return Format{*type, header};
}

// Megatron: tokens in x.bin, what they are in x.idx.
std::optional<Format> megatron_format(std::uint64_t bytes, const std::string& path) {
  const fs::path index = fs::path(path).replace_extension(".idx");
  std::error_code ignored;
  if (fs::path(path).extension() != ".bin" || !fs::exists(index, ignored)) return std::nullopt;
  const MappedFile file(index.string());
  return Format{parse_megatron_index(file.bytes(), bytes, index.string()).type, 0};
}

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::u8: return "uint8";
    case TokenType::u16: return "uint16";
    case TokenType::u32: return "uint32";
    case TokenType::i64: break;
  }
  return "int64";
}

std::optional<TokenType> type_of(const Choice<RawTokens>& given) {
  if (given == RawTokens::uint16) return TokenType::u16;
  if (given == RawTokens::uint32) return TokenType::u32;
  if (given == RawTokens::int64) return TokenType::i64;
  return std::nullopt;
}

Format format_of(std::span<const std::byte> bytes, const std::string& path, const Choice<RawTokens>& token_type,
                 std::int64_t vocab, const OptionNames& names) {
  const std::optional<TokenType> given = type_of(token_type);
  auto format = llmc_format(bytes, path);
  const char* const says = format ? "its header" : "its .idx";
  if (!format) format = megatron_format(bytes.size(), path);
  if (!format) return {given.value_or(vocab <= 65536 ? TokenType::u16 : TokenType::u32), 0, true};
  if (given && *given != format->type)
    refuse("{}: {} says that its tokens are {}, and {} = \"{}\"; leave it out, it is for raw files", path, says,
           name_of(format->type), names.token_type, token_type);
  return *format;
}

// The last of the tokens from `first` on that are looked at before training.
std::int64_t last_checked(const TokenStream& stream, std::int64_t first) {
  return std::min(stream.size(), first + kCheckedAhead);
}

// Read in which type the first tokens would all be below `vocab`; nothing: in none but perhaps `type`.
std::optional<TokenType> fitting_type(std::span<const std::byte> bytes, TokenType type, std::int64_t vocab) {
  for (const TokenType other : {TokenType::i64, TokenType::u32, TokenType::u16}) {
    if (other == type || bytes.size() % static_cast<std::size_t>(other) != 0) continue;
    if (looks_otherwise(bytes, other, false)) continue;
    TokenStream stream;
    stream.append("", std::shared_ptr<const void>(), bytes, other);
    if (!stream.beyond(vocab, 0, last_checked(stream, 0))) return other;
  }
  return std::nullopt;
}

// What helps where one of a raw file's tokens, `bytes` from `first` on in the stream, is not below `vocab`.
std::string other_reading(const TokenStream& stream, std::int64_t first, std::span<const std::byte> bytes,
                          TokenType type, std::int64_t vocab, const OptionNames& names) {
  if (const auto other = fitting_type(bytes, type, vocab))
    return fmt::format("; read as {} and not as {} its tokens are: set {} = \"{}\"", name_of(*other), name_of(type),
                       names.token_type, name_of(*other));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(last_checked(stream, first) - first));
  stream.read(first, tokens);
  // What is no id at all is read as a number below 0.
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  const bool known = looks_wider(bytes, TokenType::u16, false) == type;
  if (*least < 0 && (known || type == TokenType::i64))
    return "; it has numbers below 0 or above 2147483647, which no vocabulary has";
  if (known) return fmt::format("; set {} = {} at least", names.vocab, std::int64_t{*most} + 1);
  return fmt::format("; if its tokens are not {}, set {}, else {}", name_of(type), names.token_type, names.vocab);
}

// Appends the file's tokens, having looked at the first of them.
void append_file(TokenStream& stream, const std::string& path, const Choice<RawTokens>& token_type, std::int64_t vocab,
                 std::string_view key, bool random, const OptionNames& names) {
  const auto file = std::make_shared<MappedFile>(path);
  if (random) file->expect_random_reads();
  const Format format = format_of(file->bytes(), path, token_type, vocab, names);
  const auto bytes = file->bytes().subspan(format.header);
  if (bytes.empty()) refuse("{}: {} holds no tokens", key, path);
  // Of a type that is given too: half of what is trained on would be zeros, without a word.
  const bool given = token_type != RawTokens::automatic;
  if (const auto other = format.raw ? looks_otherwise(bytes, format.type, given, names) : std::nullopt) {
    const char* type = name_of(format.type);
    if (!looks_otherwise(bytes, format.type, true))
      refuse("{}: {} {} (to read it as {} all the same, set {} = \"{}\")", key, path, *other, type, names.token_type,
             type);
    refuse("{}: {} {} (it is read as {}; if it is that all the same, llm.c's header can say so)", key, path, *other,
           type);
  }
  if (bytes.size() % static_cast<std::size_t>(format.type) != 0)
    refuse("{}: {} has {} bytes, no whole number of {}-byte tokens ({} = \"{}\")", key, path, bytes.size(),
           static_cast<int>(format.type), names.token_type, token_type);
  const std::int64_t first = stream.size();
  stream.append(path, std::shared_ptr<const MappedFile>(file), bytes, format.type);
  if (const auto wrong = stream.beyond(vocab, first, last_checked(stream, first), names.vocab))
    refuse("{}{}", *wrong, format.raw ? other_reading(stream, first, bytes, format.type, vocab, names) : "");
}

}  // namespace

std::vector<TokenSource> open_token_files(std::span<const std::string> patterns, const Choice<RawTokens>& token_type,
                                          std::int64_t vocab, std::string_view key, bool random,
                                          const OptionNames& names) {
  std::vector<TokenSource> sources;
  for (const WeightedPattern& pattern : parse_weights(patterns, key)) {
    if (sources.empty() || pattern.weight) sources.push_back({pattern.pattern, pattern.weight.value_or(1), {}, 0});
    for (const std::string& path : find_files(pattern.pattern, key)) {
      append_file(sources.back().stream, path, token_type, vocab, key, random, names);
      ++sources.back().files;
    }
  }
  return sources;
}

bool is_known_as_tokens(const std::string& path, std::int64_t vocab) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() >= sizeof(std::uint32_t))
    if (const auto magic = load<std::uint32_t>(bytes, 0); magic == kMagicU16 || magic == kMagicU32) return true;
  std::error_code ignored;
  if (fs::path(path).extension() != ".bin" || fs::exists(fs::path(path).replace_extension(".idx"), ignored))
    return false;
  if (is_text(bytes.first(std::min<std::size_t>(bytes.size(), kCheckedAhead)))) return false;
  const auto all_below = [&](TokenType type, std::int64_t end) {
    if (bytes.size() % static_cast<std::size_t>(type) != 0) return false;
    TokenStream stream;
    stream.append("", std::shared_ptr<const void>(), bytes, type);
    return !stream.beyond(end, 0, stream.size());
  };
  // Numbers of 16 bits are hardly all below by chance where a good part of them is not, and those of 32 bits where a
  // thousandth is: of larger vocabularies than the latter no tokenizer is.
  constexpr std::int64_t kTelling = 60'000;
  constexpr std::int64_t kLargestVocab = std::int64_t{1} << 22;
  return (vocab <= kTelling && all_below(TokenType::u16, vocab)) ||
         all_below(TokenType::u32, std::max(vocab, kLargestVocab));
}

}  // namespace trireme::data
