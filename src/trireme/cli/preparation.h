#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/cli/live_line.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

// What is being prepared before a run, on stderr, when it takes more than a moment: "compiling · 12 s", one live line
// on a terminal, a plain line every few seconds otherwise. Work that is done at once shows nothing.
class Preparation {
 public:
  // `what` is a literal.
  explicit Preparation(const char* what);
  ~Preparation();
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  void begin(const char* what);
  // Takes the live line away, so that other text can follow. Nothing is shown from here on.
  void finish();

 private:
  void tick();

  std::atomic<const char*> what_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  LiveLine line_;
  std::thread thread_;
};

// For a trainer that is only to plan: warnings go to stderr, and the preparation shows what it is at.
train::TrainerOptions planning_options(Preparation& preparation);
// Where a run's notes go: a line of stderr each.
void log_to_stderr(LogLevel level, const std::string& text);

}  // namespace trireme::cli
