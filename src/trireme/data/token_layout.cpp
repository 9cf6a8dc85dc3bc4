#include "trireme/data/token_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace trireme::data {
namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 17;  // bytes
constexpr std::size_t kEnough = 64;                      // fewer bytes tell nothing

// Of the 16-bit numbers at positions i with i % period == phase: whether all are 0.
bool all_zero(std::span<const std::uint16_t> numbers, std::size_t period, std::size_t phase) {
  for (std::size_t i = phase; i < numbers.size(); i += period)
    if (numbers[i] != 0) return false;
  return true;
}

// Characters of text, in ASCII or UTF-8, and nothing else.
bool is_text(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) {
    const auto c = std::to_integer<unsigned char>(b);
    return c >= 0x20 ? c != 0x7F : c == '\n' || c == '\t' || c == '\r';
  });
}

}  // namespace

std::optional<std::string> looks_otherwise(std::span<const std::byte> bytes, TokenType type) {
  constexpr std::string_view kNumpy = "\x93NUMPY";
  if (bytes.size() >= kNumpy.size() && std::memcmp(bytes.data(), kNumpy.data(), kNumpy.size()) == 0)
    return "is a NumPy file; write the numbers alone, with array.astype(\"uint16\").tofile(…) or \"uint32\"";
  const std::size_t size = bytes.size();
  const std::span<const std::byte> first = bytes.first(std::min(size, kLookedAt));
  if (first.size() < kEnough) return std::nullopt;
  if (is_text(first)) return "looks like text; name it in data.text, or turn it into tokens with `trireme tokenize`";
  if (type == TokenType::i64) return std::nullopt;
  std::vector<std::uint16_t> numbers(first.size() / 8 * 4);
  std::memcpy(numbers.data(), first.data(), numbers.size() * sizeof(std::uint16_t));
  // Tokens are small numbers: in a wider type the upper part of each is 0.
  const bool low_ones = !all_zero(numbers, 4, 0);
  const bool wide = all_zero(numbers, 4, 2) && all_zero(numbers, 4, 3);
  const auto narrow_enough = type == TokenType::u16 ? all_zero(numbers, 4, 1) : true;
  if (low_ones && wide && narrow_enough && size % 8 == 0)
    return "looks like int64 (the upper bytes of every eight are 0); set data.token_type = \"int64\"";
  if (type == TokenType::u16 && size % 4 == 0 && all_zero(numbers, 2, 1) && !all_zero(numbers, 2, 0))
    return "looks like uint32 (every second 16-bit number is 0); set data.token_type = \"uint32\"";
  return std::nullopt;
}

}  // namespace trireme::data
