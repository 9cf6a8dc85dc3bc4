#include "trireme/cli/stop_in_time.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "trireme/cli/output.h"
#include "trireme/cli/preparation.h"

namespace trireme::cli {

StopInTime::StopInTime(Signals& signals, const Words& words) : signals_(signals), words_(words) {
  Signals::at_once(words_.nothing_yet);
  thread_ = std::thread([this] { watch(); });
}

StopInTime::~StopInTime() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StopInTime::found(std::string best) {
  const std::lock_guard lock(mutex_);
  if (best_.empty()) Signals::between_steps(words_.kept, words_.lost);
  best_ = std::move(best);
}

void StopInTime::watch() {
  constexpr auto kOften = std::chrono::milliseconds(50);
  constexpr auto kPatience = std::chrono::milliseconds(1500);
  std::unique_lock lock(mutex_);
  while (signals_.take() != train::Request::stop)
    if (changed_.wait_for(lock, kOften, [&] { return over_; })) return;
  if (changed_.wait_for(lock, kPatience, [&] { return over_; })) return;
  log_to_stderr(LogLevel::info, fmt::format("stopped: {} {}; the one at hand was not waited for", words_.best, best_));
  flush_output();
  std::_Exit(signals_.exit_code());
}

}  // namespace trireme::cli
