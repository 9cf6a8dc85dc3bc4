#pragma once
#include "trireme/train/trainer.h"

namespace trireme::cli {

// While it lives: SIGINT and SIGTERM ask the run to finish its step, save and stop (a second one quits at once);
// SIGUSR1 asks for a checkpoint.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // What was asked for since the last call.
  train::Request take();
  // 130 or 143 when a signal asked to stop, else 0.
  int exit_code() const;
};

}  // namespace trireme::cli
