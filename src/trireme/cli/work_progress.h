#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/cli/live_line.h"
#include "trireme/cli/time_left.h"

namespace trireme::cli {

// How far a piece of work is, on stderr: one live line with a bar on a terminal, a plain line every few seconds
// otherwise, also while nothing new is known for long. Work that is done at once shows nothing.
class WorkProgress {
 public:
  // `left`: what follows the time that the work still takes.
  explicit WorkProgress(const char* left = "left");
  ~WorkProgress();
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // "encoding ━━━━━╸──── 120.0 MiB of 300.0 MiB · 25.1 MiB/s · 7 s left"
  void bytes(const std::string& what, std::uint64_t done, std::uint64_t total);
  void count(const std::string& what, std::uint64_t done, std::uint64_t total);
  double seconds() const;
  // Takes the live line away, so that other text can follow.
  void finish();

 private:
  void set(const std::string& what, double share, const std::string& detail);
  void show();
  void tick();

  const char* left_text_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::string what_;
  double share_ = 0;
  TimeLeft left_;
  std::string detail_;
  LiveLine line_;
  std::thread thread_;  // shows the line again; from the first fact to `finish`
};

}  // namespace trireme::cli
