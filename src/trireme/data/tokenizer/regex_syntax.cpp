#include "trireme/data/tokenizer/regex_syntax.h"

#include <vector>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

// What \w is to Oniguruma inside a class, and alone, where Latin-1 comes from another table that has its numbers too.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWordAlone = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE";

// One pass over the expression. `atom_` is where in the output the last thing that can be repeated begins.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    refuse("{}: the regular expression \"{}\" uses {}, which is not supported", where_, in_, what);
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void step() {
    switch (peek()) {
      case '\\': escape(); break;
      case '[': character_class(); break;
      case '(': open_group(); break;
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        out_ += in_[at_++];
        break;
      case '{': interval(); break;
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$': out_ += in_[at_++]; break;
      default:
        atom_ = out_.size();
        out_ += in_[at_++];
        // The bytes of one character stay together.
        while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80) out_ += in_[at_++];
    }
  }

  void escape() {
    const std::size_t begin = out_.size();
    const char c = peek(1);
    at_ += 2;
    const auto as = [&](std::string_view text) { out_ += text; };
    const std::string word = fmt::format("[{}]", kWordAlone);
    switch (c) {
      case 's': as("\\p{White_Space}"); break;
      case 'S': as("\\P{White_Space}"); break;
      case 'w': as(word); break;
      case 'W': as(fmt::format("[^{}]", kWordAlone)); break;
      case 'b': as(fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)); break;
      case 'B': as(fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)); break;
      case 'h': as("[0-9a-fA-F]"); break;
      case 'H': as("[^0-9a-fA-F]"); break;
      default: plain_escape(c);
    }
    atom_ = begin;
  }

  // An escape that means the same in both, inside a class and outside.
  void plain_escape(char c) {
    switch (c) {
      case '\0': bad("a backslash at its end");
      case 'p':
      case 'P': {
        const std::size_t close = in_.find('}', at_);
        if (peek() != '{' || close == std::string_view::npos) bad("\\p without braces");
        out_ += '\\';
        out_ += c;
        out_ += in_.substr(at_, close + 1 - at_);
        at_ = close + 1;
        return;
      }
      case 'x': {
        if (peek() == '{') {
          const std::size_t close = in_.find('}', at_);
          if (close == std::string_view::npos) bad("\\x{ without its brace");
          out_ += "\\x";
          out_ += in_.substr(at_, close + 1 - at_);
          at_ = close + 1;
          return;
        }
        code_point(2);
        return;
      }
      case 'u': code_point(4); return;
      case 'd':
      case 'D':
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
      case 'A':
      case 'z':
      case 'Z':
        out_ += '\\';
        out_ += c;
        return;
      case 'v': out_ += "\\x0B"; return;  // to PCRE2 it is every vertical space
      default: break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) bad(fmt::format("\\{}", c));
    out_ += '\\';
    out_ += c;
    // An escaped character of several bytes: the backslash means nothing.
    if (static_cast<unsigned char>(c) >= 0x80) out_.erase(out_.size() - 2, 1);
  }

  void code_point(std::size_t digits) {
    const std::string_view hex = in_.substr(at_, digits);
    if (hex.size() != digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      bad("a malformed \\x or \\u");
    if (digits == 2 && hex[0] >= '8') bad("\\x above 7F without braces");  // a byte there, a character here
    out_ += fmt::format("\\x{{{}}}", hex);
    at_ += digits;
  }

  void character_class() {
    atom_ = out_.size();
    out_ += in_[at_++];
    if (peek() == '^') out_ += in_[at_++];
    if (peek() == ']') bad("an empty class or ']' first in a class");
    for (; at_ < in_.size() && peek() != ']';) {
      if (peek() == '[') bad("a class inside a class");
      if (next_is("&&")) bad("an intersection of classes");
      if (peek() != '\\') {
        out_ += in_[at_++];
        continue;
      }
      const char c = peek(1);
      at_ += 2;
      switch (c) {
        case 's': out_ += "\\p{White_Space}"; break;
        case 'S': out_ += "\\P{White_Space}"; break;
        case 'w': out_ += kWord; break;
        case 'h': out_ += "0-9a-fA-F"; break;
        case 'W':
        case 'H':
        case 'A':
        case 'z':
        case 'Z':
        case 'B': bad(fmt::format("\\{} in a class", c));
        case 'b': out_ += "\\x08"; break;
        default: plain_escape(c);
      }
    }
    if (at_ >= in_.size()) bad("a class without its bracket");
    out_ += in_[at_++];
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (next_is("(*")) bad("a verb");
    if (!next_is("(?")) {
      out_ += in_[at_++];
      return;
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
      if (next_is(known)) {
        out_ += known;
        at_ += known.size();
        return;
      }
    // Options: (?i) and (?i:…), also switched off.
    std::size_t end = at_ + 2;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'x' || in_[end] == '-')) ++end;
    if (end == at_ + 2 || end >= in_.size() || (in_[end] != ':' && in_[end] != ')'))
      bad(fmt::format("the group {}", in_.substr(at_, 4)));
    out_ += in_.substr(at_, end - at_);
    at_ = end;
    if (in_[end] == ':') out_ += in_[at_++];
  }

  void interval() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    const bool is_interval = end < in_.size() && in_[end] == '}' && end > at_ + 1;
    if (!is_interval) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    std::string bounds(in_.substr(at_, end + 1 - at_));
    if (bounds.starts_with("{,")) bounds.insert(1, "0");
    out_ += bounds;
    at_ = end + 1;
    if (peek() == '+' || peek() == '*') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  std::string_view in_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;
  std::vector<std::size_t> groups_;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) { return Translator(pattern, where).run(); }

}  // namespace trireme::data
