#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// How many bytes at the beginning of `text` are whole UTF-8 characters (no surrogates, nothing above U+10FFFF, no
// overlong forms).
std::size_t valid_utf8(std::string_view text);

// `text` with each maximal invalid part replaced by one U+FFFD, as Unicode recommends.
std::string to_utf8(std::string_view text);

// How many bytes at the end of `text` begin a character that further bytes could finish: 0 … 3.
std::size_t unfinished_utf8(std::string_view text);

// Bytes of the character that begins with `first`, which must begin one.
inline std::size_t utf8_length(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

// The character at `at` of valid text; moves `at` behind it.
inline char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) {
    at += 1;
    return first;
  }
  if (first < 0xE0) {
    const char32_t c = (first & 0x1F) << 6 | (byte(1) & 0x3F);
    at += 2;
    return c;
  }
  if (first < 0xF0) {
    const char32_t c = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    at += 3;
    return c;
  }
  const char32_t c = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  at += 4;
  return c;
}

void append_utf8(std::string& text, char32_t code_point);

}  // namespace trireme::data
