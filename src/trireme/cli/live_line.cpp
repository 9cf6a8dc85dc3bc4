#include "trireme/cli/live_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "trireme/cli/output.h"

namespace trireme::cli {

LiveLine::LiveLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

void LiveLine::show(const std::string& line) {
  if (terminal_)
    say(stderr, "\r\033[K{}", fitted(line, terminal_width(stderr)));
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

}  // namespace trireme::cli
