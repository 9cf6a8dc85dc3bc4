#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "trireme/cli/live_line.h"
#include "trireme/train/metrics.h"

namespace trireme::cli {

// Progress on stderr: one live line on a terminal, a plain line every few seconds otherwise.
class Progress {
 public:
  // `unit` is what the speed counts: "tok" or "images".
  Progress(std::int64_t first_step, std::int64_t steps, std::string unit = "tok");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const train::Metrics& metrics);
  void evaluation(std::int64_t done, std::int64_t total);
  // Ends the live line, so that other text can follow.
  void finish();

 private:
  void show(const std::string& line, bool force);

  std::int64_t first_;
  std::int64_t steps_;
  std::string unit_;
  LiveLine line_;
  double mean_step_ = 0;  // seconds, recent steps weigh more
  std::chrono::steady_clock::time_point last_;
  bool shown_ = false;
};

}  // namespace trireme::cli
