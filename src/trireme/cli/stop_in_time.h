#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/cli/signals.h"

namespace trireme::cli {

// Ends a search that was asked to stop. Before something is found the process quits at once: nothing is lost.
// Afterwards the search stops between two candidates and its best is reported; where a candidate takes too long for
// that, the process ends without it, within two seconds of the signal, and names the best.
class StopInTime {
 public:
  // Literals.
  struct Words {
    const char* nothing_yet;  // "no plan was found yet"
    const char* kept;         // "the best plan so far is kept"
    const char* lost;         // "the plans that were found are lost"
    const char* best;         // "the best plan so far is"
  };
  StopInTime(Signals& signals, const Words& words);
  ~StopInTime();
  StopInTime(const StopInTime&) = delete;
  StopInTime& operator=(const StopInTime&) = delete;

  // The best so far, in words.
  void found(std::string best);

 private:
  void watch();

  Signals& signals_;
  Words words_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::string best_;
  std::thread thread_;
};

}  // namespace trireme::cli
