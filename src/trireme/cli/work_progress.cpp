#include "trireme/cli/work_progress.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

}  // namespace

WorkProgress::WorkProgress() : start_(Clock::now()), last_(Clock::now()) {}
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
  if (since(last_) < line_.pause()) return;
  last_ = Clock::now();
  const double left = share > 0 ? seconds() * (1 - share) / share : 0;
  line_.show(
      progress_line(what, share, {{detail, 1}, {format_duration(std::max(0.0, left)) + " left", 2}}, line_.columns()));
}

void WorkProgress::finish() { line_.clear(); }

}  // namespace trireme::cli
