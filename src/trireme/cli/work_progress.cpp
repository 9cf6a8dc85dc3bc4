#include "trireme/cli/work_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "trireme/cli/output.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

std::string bar(double share, int width) {
  const double filled = std::clamp(share, 0.0, 1.0) * width;
  std::string out;
  for (int i = 0; i < width; ++i) out += i + 1 <= filled ? "━" : i + 0.5 <= filled ? "╸" : "─";
  return out;
}

}  // namespace

WorkProgress::WorkProgress() : start_(Clock::now()), last_(Clock::now()), terminal_(isatty(STDERR_FILENO) != 0) {}
WorkProgress::~WorkProgress() { finish(); }

double WorkProgress::seconds() const { return since(start_); }

void WorkProgress::bytes(const std::string& what, std::uint64_t done, std::uint64_t total) {
  const double per_second = static_cast<double>(done) / std::max(1e-9, seconds());
  show(what, static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, total)),
       fmt::format("{} of {} · {}/s", format_bytes(done), format_bytes(total),
                   format_bytes(static_cast<std::uint64_t>(per_second))));
}

void WorkProgress::count(const std::string& what, std::uint64_t done, std::uint64_t total) {
  show(what, static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, total)),
       fmt::format("{} of {}", format_count(done), format_count(total)));
}

void WorkProgress::show(const std::string& what, double share, const std::string& detail) {
  if (since(last_) < (terminal_ ? 0.1 : 5.0)) return;
  last_ = Clock::now();
  const double left = share > 0 ? seconds() * (1 - share) / share : 0;
  const std::string line =
      fmt::format("{} {} {} · {} left", what, bar(share, 24), detail, format_duration(std::max(0.0, left)));
  if (terminal_) {
    say(stderr, "\r\033[K{}", fitted(line, terminal_width(stderr)));
    open_ = true;
  } else {
    say(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

void WorkProgress::finish() {
  if (open_) say(stderr, "\r\033[K");
  open_ = false;
}

}  // namespace trireme::cli
