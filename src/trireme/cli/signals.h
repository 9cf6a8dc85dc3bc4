#pragma once
#include <thread>

#include "trireme/train/trainer.h"

namespace trireme::cli {

// From here on, mapped bytes that a file has lost, or that its disk does not give any more, end the process with a
// message and exit code 1; and a file that would grow over the limit of its size (ulimit -f) is an error like a full
// disk.
void report_lost_files();

// Raises SIGPIPE where standard output or error is a pipe or a socket that nobody reads any more: who writes nothing
// for a while would not notice.
void notice_closed_outputs();

// What SIGINT, SIGTERM, SIGHUP and a closed output (SIGPIPE) do while it lives. At first, and after `at_once`, they end
// the process within a moment: nothing is being trained that could be lost. After `between_steps` they ask the run to
// finish what it is at, save and stop, and SIGUSR1 asks for a checkpoint. Signals within a moment are one request. A
// second request says that the run is still stopping and what a third would lose; a third, or a second SIGINT after the
// first, quits at once. An output that nobody reads any more is replaced by /dev/null. A
// closed output is noticed within a second, also by who writes nothing. Handlers run on a thread of their own: threads
// that are started while it lives block these signals, since a handler's frame on a thread that computes damaged what
// it computed. A process started with SIGHUP ignored (nohup) keeps ignoring it.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // `why_safe` is what the process says of it when a signal comes, such as "training had not begun"; a literal.
  static void at_once(const char* why_safe);
  // What the process says that it does when a second request comes, and what it says when it quits at once: literals,
  // such as "the step is finished and a checkpoint written" and "what was trained since the last checkpoint is lost".
  static void between_steps(const char* still, const char* lost);

  // What was asked for since the last call.
  train::Request take();
  // 128 and the number of the signal that asked to stop (130, 143, 129, 141), else 0.
  int exit_code() const;

 private:
  std::thread catcher_;
};

}  // namespace trireme::cli
