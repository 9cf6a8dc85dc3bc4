#include "trireme/data/tokenizer/pattern.h"

namespace trireme::data {

Pattern::Pattern(const JsonNode& node) {
  if (const auto literal = node.find("String")) {
    literal_ = source_ = literal->text();
    if (literal_.empty()) literal->refuse("must not be empty");
  } else if (const auto expression = node.find("Regex")) {
    source_ = expression->text();
    regex_.emplace(source_, expression->where());
  } else {
    node.refuse("must be {\"String\": …} or {\"Regex\": …}");
  }
}

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content, RegexScratch& scratch,
                        bool* lost_start) {
  std::string out;
  std::size_t done = 0;
  pattern.each(text, scratch, [&](std::size_t begin, std::size_t end) {
    out += text.substr(done, begin - done);
    out += content;
    if (out.empty() && end > 0 && lost_start != nullptr) *lost_start = true;
    done = end;
  });
  out += text.substr(done);
  return out;
}

}  // namespace trireme::data
