#include "trireme/data/cut_text.h"

#include <algorithm>

#include "trireme/data/json_escapes.h"

namespace trireme::data {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool printable_ascii(char c) { return c > ' ' && c < 0x7F; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Goes through a text by its characters and finds the first place of each kind.
class Places {
 public:
  Places(std::string_view text, bool escaped) : text_(text), escaped_(escaped) {}

  // The best place behind `begin` and up to `end`; both grow from call to call.
  std::size_t find(std::size_t begin, std::size_t end, Cuts cuts) {
    std::size_t word = kNone;
    std::size_t any = kNone;
    while (at_ < end && at_ < text_.size()) {
      const std::size_t here = at_;
      const char c = text_[here];
      const std::size_t length = escaped_ && c == '\\' ? std::max<std::size_t>(1, valid_escape(text_.substr(here))) : 1;
      const bool newline = length == 1 ? c == '\n' : length == 2 && text_[here + 1] == 'n';
      at_ += length;
      const char before = before_;
      before_ = length == 1 ? c : '\0';
      if (at_ >= text_.size() || here < begin) continue;
      const char after = escaped_ && text_[at_] == '\\' ? '\0' : text_[at_];
      if (newline && printable_ascii(before) && printable_ascii(after)) return at_;
      if (word == kNone && c == ' ' && letter(before) && letter(after)) word = here;
      if (any == kNone && !continues_character(text_[at_])) any = at_;
    }
    if (cuts >= Cuts::words && word != kNone) return word;
    return cuts >= Cuts::anywhere ? any : kNone;
  }

 private:
  std::string_view text_;
  bool escaped_;
  std::size_t at_ = 0;
  char before_ = '\0';  // the character before at_, where that is one byte
};

}  // namespace

std::size_t next_part(std::string_view text, Cuts cuts, bool escaped) {
  if (cuts == Cuts::none || text.size() <= 2 * kPart) return text.size();
  Places places(text, escaped);
  for (std::size_t begin = kPart; begin < text.size(); begin += kPart)
    if (const std::size_t found = places.find(begin, begin + kPart, cuts); found != kNone) return found;
  return text.size();
}

}  // namespace trireme::data
