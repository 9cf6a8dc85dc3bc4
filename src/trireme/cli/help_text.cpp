#include "trireme/cli/help_text.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "trireme/cli/output.h"

namespace trireme::cli {
namespace {

// Of an example, what a shell would not take apart: in single quotes.
std::vector<std::string> words_of(std::string_view text, bool example) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : text) {
    if (c == '\'' && example) quoted = !quoted;
    if (c != ' ' || quoted)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Lines of at most so many columns, where words allow it; all but the first begin with `indent` spaces, and all but the
// last end with `broken`.
std::string filled(const std::string& first, const std::vector<std::string>& words, int indent, int columns,
                   std::string_view broken) {
  std::string text, line = first;
  bool empty = true;
  for (const std::string& word : words) {
    const int end = columns_of(line) + columns_of(word) + (empty ? 0 : 1) + columns_of(broken);
    if (!empty && end > columns) {
      text += line + std::string(broken) + "\n";
      line = std::string(static_cast<std::size_t>(indent), ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return text + line + "\n";
}

std::string wrapped_line(const std::string& line, int columns, bool example) {
  constexpr int kLeast = 24;  // columns that a column of text is worth having for
  constexpr int kBelow = 6;   // spaces before what goes on in a line of its own
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  // "  --name TEXT      what it does": two columns, or with spaces alone before it the second of them.
  std::size_t gap = line.find("  ", begin);
  std::size_t text = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
  if (gap == std::string::npos) gap = begin;
  const std::string left = line.substr(0, gap), right = line.substr(text);
  const auto indent = static_cast<int>(text);
  const std::string spaces(static_cast<std::size_t>(kBelow), ' ');
  if (gap > begin) {
    if (columns - indent >= kLeast) return filled(line.substr(0, text), words_of(right, false), indent, columns, "");
    const std::string name =
        example ? filled(line.substr(0, begin), words_of(left.substr(begin), true), kBelow, columns, " \\")
                : left + "\n";
    return name + filled(spaces, words_of(right, false), kBelow, columns, "");
  }
  if (example) return filled(line.substr(0, begin), words_of(right, true), kBelow, columns, " \\");
  const int under = columns - indent >= kLeast ? indent : kBelow;
  return filled(std::string(static_cast<std::size_t>(under), ' '), words_of(right, false), under, columns, "");
}

}  // namespace

std::string wrapped_help(const std::string& text, int columns) {
  if (columns <= 0) return text;
  std::string wrapped;
  bool example = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    example = example || line.starts_with("Examples:");
    wrapped += columns_of(line) <= columns ? line + "\n" : wrapped_line(line, columns, example);
    at = end + 1;
  }
  if (!text.ends_with('\n') && !wrapped.empty()) wrapped.pop_back();
  return wrapped;
}

}  // namespace trireme::cli
