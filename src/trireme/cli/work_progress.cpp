#include "trireme/cli/work_progress.h"

#include <algorithm>

#include "trireme/cli/signals.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

}  // namespace

WorkProgress::WorkProgress(const char* left) : left_text_(left), start_(Clock::now()), last_(Clock::now()) {}
WorkProgress::~WorkProgress() { finish(); }

double WorkProgress::seconds() const { return since(start_); }

void WorkProgress::bytes(const std::string& what, std::uint64_t done, std::uint64_t total) {
  const double per_second = static_cast<double>(done) / std::max(1e-9, seconds());
  set(what, static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, total)),
      fmt::format("{} of {} · {}/s", format_bytes(done), format_bytes(total),
                  format_bytes(static_cast<std::uint64_t>(per_second))));
}

void WorkProgress::count(const std::string& what, std::uint64_t done, std::uint64_t total) {
  set(what, static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, total)),
      fmt::format("{} of {}", format_count(done), format_count(total)));
}

void WorkProgress::set(const std::string& what, double share, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  share_ = share;
  left_.reached(share, seconds());
  detail_ = detail;
  if (!thread_.joinable()) {
    finished_ = false;
    thread_ = std::thread([this] { tick(); });
  }
  if (since(last_) >= line_.pause()) show();
}

void WorkProgress::show() {
  last_ = Clock::now();
  const double now = seconds();
  const std::optional<double> left = left_.seconds(now);
  const std::string time =
      left ? fmt::format("{} {}", format_duration(*left), left_text_) : format_duration(now) + " so far";
  line_.show(progress_line(what_, share_, {{detail_, 1}, {time, 2}}, line_.columns()));
}

void WorkProgress::tick() {
  constexpr double kLeast = 1;  // seconds: as often as durations change
  const std::chrono::duration<double> every(std::max(kLeast, line_.pause()));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, every / 4, [&] { return finished_; })) {
    notice_closed_outputs();
    if (since(last_) >= every.count()) show();
  }
}

void WorkProgress::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  line_.clear();
}

}  // namespace trireme::cli
