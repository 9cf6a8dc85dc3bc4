#pragma once
#include <cstddef>
#include <string_view>

namespace trireme::data {

// The four digits behind "\u" at the beginning of `text`, which must be one; -1: it is not.
inline int escaped_unit(std::string_view text) {
  constexpr std::size_t kLength = 6;
  if (text.size() < kLength || text[0] != '\\' || text[1] != 'u') return -1;
  int unit = 0;
  for (const char c : text.substr(2, 4)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// Bytes of the escape of a JSON string that `text` begins with, both halves of a surrogate pair together; 0: it is
// none.
inline std::size_t valid_escape(std::string_view text) {
  constexpr std::size_t kUnit = 6;
  if (text.size() < 2 || text[0] != '\\') return 0;
  if (text[1] != 'u') return std::string_view("\"\\/bfnrt").find(text[1]) == std::string_view::npos ? 0 : 2;
  const int unit = escaped_unit(text);
  if (unit < 0 || (unit >= 0xDC00 && unit < 0xE000)) return 0;
  if (unit < 0xD800 || unit >= 0xE000) return kUnit;
  const int second = escaped_unit(text.substr(kUnit));
  return second >= 0xDC00 && second < 0xE000 ? 2 * kUnit : 0;
}

}  // namespace trireme::data
