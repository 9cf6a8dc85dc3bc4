#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/tokenizer/json_node.h"
#include "trireme/data/tokenizer/regex.h"

namespace trireme::data {

// {"String": "…"} or {"Regex": "…"}: what to look for in a text.
class Pattern {
 public:
  explicit Pattern(const JsonNode& node);

  // Each match in order, none overlapping: found(begin, end).
  template <class F>
  void each(std::string_view text, RegexScratch& scratch, F&& found) const {
    if (regex_) return regex_->each(text, scratch, found);
    for (std::size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos; at += literal_.size())
      found(at, at + literal_.size());
  }

  // The expression when there is one.
  const Regex* regex() const { return regex_ ? &*regex_ : nullptr; }
  const std::string& source() const { return source_; }

 private:
  std::optional<Regex> regex_;
  std::string literal_;  // never empty when used
  std::string source_;
};

// Every match of `pattern` in `text` replaced by `content`. `lost_start` becomes true when what the text
// began with is gone.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content, RegexScratch& scratch,
                        bool* lost_start = nullptr);

}  // namespace trireme::data
