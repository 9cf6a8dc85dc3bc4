#include "trireme/data/tokenizer/byte_level.h"

#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {

const std::array<char32_t, 256>& byte_level_characters() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> t{};
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      t[b] = itself ? b : next++;
    }
    return t;
  }();
  return table;
}

const std::array<std::string, 256>& byte_level_spellings() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> t;
    for (std::size_t b = 0; b < 256; ++b) append_utf8(t[b], byte_level_characters()[b]);
    return t;
  }();
  return table;
}

std::optional<std::uint8_t> byte_of_character(char32_t c) {
  static const std::array<std::int16_t, 0x144> table = [] {
    std::array<std::int16_t, 0x144> t{};
    t.fill(-1);
    for (std::size_t b = 0; b < 256; ++b) t[byte_level_characters()[b]] = static_cast<std::int16_t>(b);
    return t;
  }();
  if (c >= table.size() || table[c] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(table[c]);
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) out += byte_level_spellings()[static_cast<unsigned char>(b)];
  return out;
}

std::optional<std::string> bytes_of_spelling(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const auto byte = byte_of_character(next_code_point(token, at));
    if (!byte) return std::nullopt;
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

}  // namespace trireme::data
