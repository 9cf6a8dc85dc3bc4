#include "trireme/data/tokenizer/utf8.h"

#include <cstring>

namespace trireme::data {
namespace {

// One character, or the beginning of one: how long it is when whole, and how many bytes of it are right.
struct Form {
  std::size_t length = 0;  // 0: no character begins like this
  std::size_t right = 0;
};

Form form_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, 1};
  if (first < 0xC2 || first > 0xF4) return {0, 1};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte's range is what rules out overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0U : first == 0xF0 ? 0x90U : 0x80U;
  const unsigned high = first == 0xED ? 0x9FU : first == 0xF4 ? 0x8FU : 0xBFU;
  std::size_t right = 1;
  for (; right < length && at + right < text.size(); ++right) {
    const unsigned next = byte(right);
    if (next < (right == 1 ? low : 0x80U) || next > (right == 1 ? high : 0xBFU)) break;
  }
  return {length, right};
}

}  // namespace

std::size_t valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    while (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ULL) != 0) break;
      at += sizeof eight;
    }
    if (at == text.size()) break;
    const Form form = form_at(text, at);
    if (form.right != form.length) break;
    at += form.length;
  }
  return at;
}

std::string to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const std::size_t good = valid_utf8(text);
    out += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) return out;
    out += kReplacement;
    text.remove_prefix(form_at(text, 0).right);
  }
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if (c < 0x80) return 0;
    if (c < 0xC0) continue;
    const Form form = form_at(text, text.size() - back);
    return form.right == back && form.right < form.length ? back : 0;
  }
  return 0;
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace trireme::data
