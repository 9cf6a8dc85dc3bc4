#include "trireme/cli/preparation.h"

#include <algorithm>

#include "trireme/cli/output.h"
#include "trireme/cli/signals.h"
#include "trireme/core/text.h"

namespace trireme::cli {

Preparation::Preparation(const char* what)
    : what_(what), start_(std::chrono::steady_clock::now()), thread_([this] { tick(); }) {}

Preparation::~Preparation() { finish(); }

void Preparation::begin(const char* what) { what_ = what; }

void Preparation::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  line_.clear();
}

void log_to_stderr(LogLevel level, const std::string& text) {
  // On a terminal a live line may be there: it comes again below.
  say(stderr, "{}{}{}\n", terminal_width(stderr) > 0 ? "\r\033[K" : "", level == LogLevel::warning ? "warning: " : "",
      text);
}

train::TrainerOptions planning_options(Preparation& preparation) {
  train::TrainerOptions options;
  options.write = false;
  options.dry_run = true;
  options.log = log_to_stderr;
  options.on_phase = [&preparation](const char* phase) { preparation.begin(phase); };
  return options;
}

void Preparation::tick() {
  const auto every = line_.terminal() ? std::chrono::milliseconds(500) : std::chrono::milliseconds(5000);
  constexpr auto kMoment = std::chrono::milliseconds(1000);
  std::unique_lock lock(mutex_);
  auto shown = start_;
  while (!changed_.wait_for(lock, std::min<std::chrono::milliseconds>(every, kMoment), [&] { return finished_; })) {
    notice_closed_outputs();
    const auto now = std::chrono::steady_clock::now();
    if (now - shown < (shown == start_ ? std::max<std::chrono::milliseconds>(every, kMoment) : every)) continue;
    shown = now;
    line_.show(
        fmt::format("{} · {}", what_.load(), format_duration(std::chrono::duration<double>(now - start_).count())));
  }
}

}  // namespace trireme::cli
