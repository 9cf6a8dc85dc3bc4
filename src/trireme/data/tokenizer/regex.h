#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

// What one thread needs to match: made once, used with any expression.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A regular expression over UTF-8 text with Unicode classes and look-around, by PCRE2 and its JIT. Expressions are
// written as tokenizer.json files have them, in Oniguruma's syntax; regex_syntax.h says what is understood.
//
//   Regex words(" ?\\p{L}+", "pattern");
//   words.each(text, scratch, [&](std::size_t begin, std::size_t end) { … });
class Regex {
 public:
  // Refuses what does not compile; `where` names it in errors.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Each match in order, none overlapping. An empty match right behind the last match is no match.
  template <class F>
  void each(std::string_view text, RegexScratch& scratch, F&& found) const {
    std::size_t from = 0;
    std::size_t last_end = static_cast<std::size_t>(-1);
    while (from <= text.size()) {
      const auto match = search(text, from, scratch);
      if (!match) return;
      if (match->begin == match->end && match->end == last_end) {
        from = behind(text, from);
        continue;
      }
      found(match->begin, match->end);
      from = last_end = match->end;
    }
  }

 private:
  struct Match {
    std::size_t begin;
    std::size_t end;
  };
  std::optional<Match> search(std::string_view text, std::size_t from, RegexScratch& scratch) const;
  static std::size_t behind(std::string_view text, std::size_t at);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::data
