#pragma once
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::comm::mpi {

// Whether this build has MPI, and whose ("Open MPI v4.1.4"); "" without.
bool available();
std::string version();

// What a launcher (mpirun, srun) says to this process through its environment.
struct Launched {
  int rank = 0;
  int size = 1;
  std::string launcher;
  // Of them on this machine: what MPI says while a session lives, else what the launcher says, else all.
  int here = 1;
};
std::optional<Launched> launched();
// By sessions: what MPI says; 0: it no longer does.
void found_here(int processes);

struct SessionOptions {
  double timeout = 60;                             // seconds that a call may wait
  std::shared_ptr<const Tuning> tuning = nullptr;  // rank 0's is used by all
  // `native` by MPI's blocking calls: somewhat quicker, but such a call cannot learn of a failure and never times
  // out.
  bool blocking_native = false;
};

// MPI, initialised (for several threads) while this lives: one per process, never made by the library itself. Refuses
// where the build has no MPI. Communicators must not outlive it.
//
// Leaving it by an exception, or after abort(), tells the other ranks and does not finalise MPI, which could wait for
// them for ever; the process should then exit with an error, upon which the launcher ends the rest. What a rank has to
// say it should say before: as soon as one process has left, the launcher may end the others.
class Session {
 public:
  explicit Session(const SessionOptions& options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const;
  int size() const;
  // All ranks; collective.
  Communicator communicator();
  void abort(const std::string& why);
  // After a failure, by every rank, with the code (0 … 255) that it would exit with: one of those that failed by
  // themselves (`cause`) is chosen, or else of the others. It reports, and all exit with its code. A rank that does not
  // hear from all of them within a moment is on its own.
  struct Verdict {
    bool reports = true;
    int exit_code = 1;
  };
  Verdict settle_failure(bool cause, int exit_code);

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme::comm::mpi
