#include "trireme/data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/unicode_tables.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

template <std::size_t N>
bool in(const CodePointRange (&table)[N], char32_t c) {
  const auto* after = std::upper_bound(std::begin(table), std::end(table), c,
                                       [](char32_t x, const CodePointRange& range) { return x < range.first; });
  return after != std::begin(table) && c <= std::prev(after)->last;
}

void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(made, std::free);
  if (size < 0) fail("cannot normalise text: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(size));
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  // What is all ASCII is in every form, and below U+0300 nothing composes any further.
  const bool composed = form == NormalForm::nfc;
  const auto plain = [&](char c) { return static_cast<unsigned char>(c) < (composed ? 0xCC : 0x80); };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);

  // A character that has no normal form in the tables vocabularies were made with stays, and nothing reaches across it.
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c < kNoNormalForm[0].first || !in(kNoNormalForm, c)) continue;
    if (done < begin) append_normal_form(out, text.substr(done, begin - done), form);
    out += text.substr(begin, at - begin);
    done = at;
  }
  if (done < text.size()) append_normal_form(out, text.substr(done), form);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == 0x130)  // the one character whose lower case is two
      out += "i\xCC\x87";
    else
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_number(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  const bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
  return mark != in(kOtherMark, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7F && !((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'));
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO) != in(kOtherPunctuation, c);
}

bool is_word(char32_t c) {
  const auto k = category(c);
  if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) return true;  // letters, marks, decimal digits
  if (k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC) return true;
  // Alphabetic symbols: circled, squared and negative letters. And the two joiners.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

}  // namespace trireme::data
