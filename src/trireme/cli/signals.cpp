#include "trireme/cli/signals.h"

#include <unistd.h>

#include <csignal>

namespace trireme::cli {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t checkpoint_wanted = 0;

void on_stop(int signal) {
  if (stop_signal != 0) _exit(128 + signal);
  stop_signal = signal;
}

void on_checkpoint(int) { checkpoint_wanted = 1; }

}  // namespace

Signals::Signals() {
  std::signal(SIGINT, on_stop);
  std::signal(SIGTERM, on_stop);
  std::signal(SIGUSR1, on_checkpoint);
}

Signals::~Signals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGUSR1, SIG_DFL);
}

train::Request Signals::take() {
  if (stop_signal != 0) return train::Request::stop;
  if (checkpoint_wanted == 0) return train::Request::none;
  checkpoint_wanted = 0;
  return train::Request::checkpoint;
}

int Signals::exit_code() const { return stop_signal == 0 ? 0 : 128 + static_cast<int>(stop_signal); }

}  // namespace trireme::cli
