#pragma once
#include <string>
#include <string_view>

namespace trireme::data {

// Normalisation and character classes, by utf8proc; where Hugging Face's library, with which vocabularies are made, has
// older tables, by those (unicode_tables.h).
enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` must be UTF-8.
std::string normal_form(std::string_view text, NormalForm form);
// Each character on its own, as tables give it: no rule that looks at neighbours.
std::string lower_case(std::string_view text);

bool is_white_space(char32_t c);  // the property White_Space
bool is_number(char32_t c);       // category N
bool is_mark(char32_t c);         // category M
bool is_punctuation(char32_t c);  // category P, and every ASCII character that is neither letter, digit nor space
bool is_word(char32_t c);         // what \w stands for: alphabetic, marks, decimal digits, connectors, joiners

}  // namespace trireme::data
