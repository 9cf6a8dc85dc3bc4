#include "trireme/data/token_layout.h"

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 17;  // bytes, of each place
constexpr std::size_t kEnough = 64;                      // fewer bytes tell nothing
constexpr std::size_t kEnoughWhereGiven = 256;           // … against a type that is given

// Where a file is looked at: its beginning, its middle and its end, since any of them may be padding. Each starts at a
// multiple of eight bytes.
std::vector<std::span<const std::byte>> looked_at(std::span<const std::byte> bytes) {
  if (bytes.size() <= 3 * kLookedAt) return {bytes};
  const auto part = [&](std::size_t at) { return bytes.subspan(at / 8 * 8, kLookedAt); };
  return {part(0), part(bytes.size() / 2), part(bytes.size() - kLookedAt)};
}

// Bytes as integers of `Wide`, where tokens of a narrower type are expected. Tokens are small numbers: in a wider type
// the upper part of each is small too, and mostly 0.
class Widened {
 public:
  // `skipped`: bytes before the first of them.
  template <class Wide>
  static Widened read(std::span<const std::byte> bytes, TokenType narrow, std::size_t skipped) {
    Widened seen;
    const auto lower = std::make_unique<std::bitset<65536>>();
    for (const std::span<const std::byte> part : looked_at(bytes))
      if (!seen.add<Wide>(part.subspan(skipped), narrow, *lower)) return {};
    seen.distinct_ = lower->count();
    seen.cut_ = bytes.size() % sizeof(Wide) != 0;
    return seen;
  }

  // Whether they are integers of that type. `given`: only overwhelming evidence counts.
  bool likely(bool given) const {
    if (numbers_ > 0 && large_ + huge_ == 0 && !given && !cut_) return true;
    const std::size_t enough = given ? 128 : 16;
    if (numbers_ < enough || !rare(huge_)) return false;
    if (large_ + huge_ + masked_ == 0) return true;  // however few differ
    if (rare(large_ + huge_)) return distinct_ >= enough / 4;
    // Vocabularies above 65536: the lower halves then range over all that 16 bits can say.
    return distinct_ >= enough / 2 && high_ * 16 >= numbers_;
  }
  const char* upper_parts() const { return large_ + huge_ + masked_ == 0 ? "0" : "small"; }

 private:
  static constexpr std::uint64_t kSmall = 31;   // upper halves of ids below 2^21
  static constexpr std::uint64_t kHigh = 4096;  // lower halves that only large vocabularies have often

  bool rare(std::size_t count) const { return count * 32 <= numbers_; }

  // False: one of them is no id.
  template <class Wide>
  bool add(std::span<const std::byte> bytes, TokenType narrow, std::bitset<65536>& lower) {
    const auto narrow_bits = 8 * static_cast<int>(narrow);
    for (std::size_t at = 0; at + sizeof(Wide) <= bytes.size(); at += sizeof(Wide)) {
      Wide value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      if (value == 0) continue;
      // Such as -1 and -100, by which positions are masked.
      if (value < 0 && value >= -256) {
        ++masked_;
        continue;
      }
      ++numbers_;
      const auto bits = static_cast<std::uint64_t>(value);
      for (int shift = narrow_bits; shift < 8 * static_cast<int>(sizeof(Wide)); shift += 16)
        if ((bits >> shift & 0xFFFF) > kSmall) return false;
      if (bits >> narrow_bits != 0) ++(bits >> 32 == 0 ? large_ : huge_);
      if ((bits & 0xFFFF) >= kHigh) ++high_;
      lower.set(bits & 0xFFFF);
    }
    return true;
  }

  std::size_t numbers_ = 0;   // neither 0 nor masked
  std::size_t masked_ = 0;    // slightly below 0
  std::size_t large_ = 0;     // more than the narrow type can say
  std::size_t huge_ = 0;      // more than 32 bits can say
  std::size_t high_ = 0;      // with a lower half of kHigh or more
  std::size_t distinct_ = 0;  // different lower halves
  bool cut_ = false;          // there is a part of one more
};

struct WiderType {
  TokenType type;
  const char* upper_parts;
};

// Bytes too few or too many make no other type of the rest: they are taken to be at the end, and else at the beginning.
template <class Wide>
std::optional<WiderType> if_likely(TokenType wide, std::span<const std::byte> bytes, TokenType type, bool given) {
  for (const std::size_t skipped : std::set<std::size_t>{0, bytes.size() % sizeof(Wide)})
    if (const auto seen = Widened::read<Wide>(bytes, type, skipped); seen.likely(given))
      return WiderType{wide, seen.upper_parts()};
  return std::nullopt;
}

std::optional<WiderType> wider_than(std::span<const std::byte> bytes, TokenType type, bool given) {
  if (bytes.size() < kEnough) return std::nullopt;
  // The widest comes first: integers of 64 bits look like those of 32 too.
  std::optional<WiderType> wider;
  if (type < TokenType::i64) wider = if_likely<std::int64_t>(TokenType::i64, bytes, type, given);
  if (!wider && type < TokenType::u32) wider = if_likely<std::int32_t>(TokenType::u32, bytes, type, given);
  return wider;
}

}  // namespace

bool is_text(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) {
    const auto c = std::to_integer<unsigned char>(b);
    return c >= 0x20 ? c != 0x7F : c == '\n' || c == '\t' || c == '\r';
  });
}

std::optional<TokenType> looks_wider(std::span<const std::byte> bytes, TokenType type, bool given) {
  const auto wider = wider_than(bytes, type, given);
  return wider ? std::optional(wider->type) : std::nullopt;
}

std::optional<std::string> looks_otherwise(std::span<const std::byte> bytes, TokenType type, bool given,
                                           const OptionNames& names) {
  constexpr std::string_view kNumpy = "\x93NUMPY";
  if (bytes.size() >= kNumpy.size() && std::memcmp(bytes.data(), kNumpy.data(), kNumpy.size()) == 0)
    return "is a NumPy file; write the numbers alone, with array.astype(\"uint16\").tofile(…) or \"uint32\"";
  const std::span<const std::byte> first = bytes.first(std::min(bytes.size(), kLookedAt));
  if (first.size() < (given ? kEnoughWhereGiven : kEnough)) return std::nullopt;
  if (is_text(first))
    return fmt::format("looks like text; name it in {}, or turn it into tokens with `trireme tokenize`", names.text);
  const auto wider = wider_than(bytes, type, given);
  if (!wider) return std::nullopt;
  const bool cut = bytes.size() % static_cast<std::size_t>(wider->type) != 0;
  const std::string mend =
      cut ? fmt::format(", and mend the file: its {} bytes are no whole number of those", bytes.size()) : "";
  if (wider->type == TokenType::i64)
    return fmt::format("looks like int64 (the upper bytes of every eight are {}); set {} = \"int64\"{}",
                       wider->upper_parts, names.token_type, mend);
  return fmt::format("looks like uint32 (every second 16-bit number is {}); set {} = \"uint32\"{}", wider->upper_parts,
                     names.token_type, mend);
}

}  // namespace trireme::data
