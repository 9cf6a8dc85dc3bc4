#include "trireme/cli/live_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "trireme/cli/output.h"

namespace trireme::cli {

LiveLine::LiveLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

int LiveLine::columns() const { return terminal_ ? terminal_width(stderr) : 0; }

void LiveLine::show(const std::string& line) {
  if (terminal_)
    say(stderr, "\r\033[K{}", fitted(line, columns()));
  else
    say(stderr, "{}\n", line);
  std::fflush(stderr);
  open_ = terminal_;
}

void LiveLine::keep() {
  if (open_) say(stderr, "\n");
  open_ = false;
}

void LiveLine::clear() {
  if (open_) say(stderr, "\r\033[K");
  open_ = false;
}

std::string progress_bar(double share, int width) {
  const double filled = std::clamp(share, 0.0, 1.0) * width;
  std::string out;
  for (int i = 0; i < width; ++i) out += i + 1 <= filled ? "━" : i + 0.5 <= filled ? "╸" : "─";
  return out;
}

std::string progress_line(const std::string& head, double share, std::vector<Fact> facts, int columns) {
  constexpr int kShortest = 4;  // a bar of fewer columns says nothing
  const auto line = [&](const std::string& bar) {
    std::string text = head + (bar.empty() ? "" : " " + bar);
    for (const Fact& fact : facts) text += (&fact == &facts.front() ? " " : " · ") + fact.text;
    return text;
  };
  const auto less = [](const Fact& a, const Fact& b) { return a.importance < b.importance; };
  if (columns <= 0) return line(progress_bar(share));
  while (facts.size() > 1 && columns_of(line("")) > columns)
    facts.erase(std::min_element(facts.begin(), facts.end(), less));
  const int room = std::min(kBarWidth, columns - columns_of(line("")) - 1);
  return fitted(line(room < kShortest ? "" : progress_bar(share, room)), columns);
}

}  // namespace trireme::cli
