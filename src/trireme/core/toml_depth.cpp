#include "trireme/core/toml_depth.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme {
namespace {

// Deeper than any file that is meant, and both together far from what a thread's stack holds.
constexpr int kMax = 32;

// Where the string that begins at `at` ends, one past its closing quotes. What a line or the text ends first is no
// TOML, and a parser stops there.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at).starts_with(three);
  for (std::size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (lines && text.substr(i).starts_with(three)) {
      i += 3;
      for (int more = 0; more < 2 && i < text.size() && text[i] == quote; ++more) ++i;  // """"four"""" ends in one
      return i;
    } else if (!lines && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    }
  }
  return text.size();
}

}  // namespace

void check_toml_depth(std::string_view text, const std::string& file) {
  int parts = 1;   // of the key so far
  int inside = 0;  // lists and tables
  for (std::size_t i = 0; i < text.size();) {
    switch (text[i]) {
      case '"':
      case '\'': i = end_of_string(text, i); continue;
      case '#': i = std::min(text.find('\n', i), text.size()); continue;
      case '.': ++parts; break;
      case '[':
      case '{': ++inside; [[fallthrough]];
      case ',':
      case '=':
      case '\n': parts = 1; break;
      case ']':
      case '}': inside = std::max(0, inside - 1); break;
      default: break;
    }
    if (parts > kMax || inside > kMax)
      refuse("{}:{}: {} than {}, which nothing that is read here needs", file,
             1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'),
             parts > kMax ? "a key of more parts" : "more lists and tables within each other", kMax);
    ++i;
  }
}

}  // namespace trireme
