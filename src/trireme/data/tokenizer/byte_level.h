#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

// Byte-level vocabularies spell each byte as a printable character: '!' … '~', '¡' … '¬' and '®' … 'ÿ' as themselves,
// the other 68 in order from U+0100 on. A space is "Ġ".
const std::array<char32_t, 256>& byte_level_characters();
// The same as UTF-8.
const std::array<std::string, 256>& byte_level_spellings();

// The byte that a character stands for.
std::optional<std::uint8_t> byte_of_character(char32_t c);

std::string spell_bytes(std::string_view bytes);
// The bytes that a token spells; nothing when one of its characters stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view token);

}  // namespace trireme::data
