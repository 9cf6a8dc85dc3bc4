#include "trireme/data/megatron_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::size_t kHeaderBytes = kMagic.size() + 8 + 1 + 8 + 8;
constexpr std::uint64_t kChecked = 1 << 20;

template <class T>
T load_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.subspan(offset, sizeof value).data(), sizeof value);
  return value;
}

TokenType type_of(std::uint8_t code, const std::string& name) {
  constexpr std::array<const char*, 9> names = {"",      "uint8",   "int8",    "int16", "int32",
                                                "int64", "float64", "float32", "uint16"};
  switch (code) {
    case 1: return TokenType::u8;
    case 4: return TokenType::u32;  // never negative
    case 5: return TokenType::i64;  // what is no id is found as it is read
    case 8: return TokenType::u16;
    default:
      refuse("{}: tokens of type code {}{} are not supported (uint8, uint16, int32 and int64 are)", name, code,
             code > 0 && code < names.size() ? fmt::format(" ({})", names[code]) : "");
  }
}

struct IndexCounts {
  std::uint64_t sequences = 0;
  std::uint64_t documents = 0;
};

// Bytes of an index, without modes; nothing when they cannot be counted.
std::optional<std::uint64_t> size_of(const IndexCounts& counts) {
  std::uint64_t lists = 0;
  std::uint64_t documents = 0;
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(counts.sequences, std::uint64_t{12}, &lists) ||
      __builtin_mul_overflow(counts.documents, std::uint64_t{8}, &documents) ||
      __builtin_add_overflow(lists, documents, &total) ||
      __builtin_add_overflow(total, std::uint64_t{kHeaderBytes}, &total))
    return std::nullopt;
  return total;
}

}  // namespace

MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, std::uint64_t bin_bytes, const std::string& name) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    refuse("{}: not an index of Megatron's format, though it lies next to a token file of its name", name);
  const auto version = load_at<std::uint64_t>(bytes, kMagic.size());
  if (version != 1) refuse("{}: version {} of Megatron's index is not known (1 is)", name, version);
  const TokenType type = type_of(load_at<std::uint8_t>(bytes, kMagic.size() + 8), name);
  const IndexCounts counts{load_at<std::uint64_t>(bytes, kMagic.size() + 9),
                           load_at<std::uint64_t>(bytes, kMagic.size() + 17)};
  const auto expected = size_of(counts);
  const bool has_room = expected && *expected <= bytes.size();
  if (!has_room || (bytes.size() != *expected && bytes.size() - *expected != counts.sequences))
    refuse("{}: {} sequences and {} documents need {} bytes, but the index has {}", name, counts.sequences,
           counts.documents, expected ? fmt::format("{}", *expected) : "more", bytes.size());

  const std::uint64_t lengths = kHeaderBytes;
  const std::uint64_t offsets = lengths + counts.sequences * 4;
  const auto width = static_cast<std::uint64_t>(type);
  const auto end_of = [&](std::uint64_t i) -> std::uint64_t {
    const auto length = load_at<std::int32_t>(bytes, lengths + i * 4);
    const auto offset = load_at<std::int64_t>(bytes, offsets + i * 8);
    if (length < 0 || offset < 0 || static_cast<std::uint64_t>(offset) > bin_bytes ||
        static_cast<std::uint64_t>(length) * width > bin_bytes - static_cast<std::uint64_t>(offset))
      refuse("{}: sequence {} ({} tokens from byte {}) does not lie in the {} bytes of the token file", name, i, length,
             offset, bin_bytes);
    return static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(length) * width;
  };
  const auto check = [&](std::uint64_t first, std::uint64_t last) {
    std::uint64_t end = first == 0 ? 0 : end_of(first - 1);
    for (std::uint64_t i = first; i < last; ++i) {
      const auto offset = load_at<std::int64_t>(bytes, offsets + i * 8);
      const std::uint64_t next = end_of(i);
      if (static_cast<std::uint64_t>(offset) != end)
        refuse("{}: sequence {} begins at byte {}, but the one before ends at {}; only sequences end to end are read",
               name, i, offset, end);
      end = next;
    }
    return end;
  };
  std::uint64_t end = check(0, std::min(counts.sequences, kChecked));
  if (counts.sequences > kChecked) end = check(std::max(kChecked, counts.sequences - kChecked), counts.sequences);
  if (end != bin_bytes)
    refuse("{}: its sequences end at byte {}, but the token file has {} bytes", name, end, bin_bytes);
  return {type, counts.sequences};
}

}  // namespace trireme::data
