#include "trireme/cli/processes.h"

#include <cstdio>

#include "trireme/cli/output.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/train/culprit.h"

namespace trireme::cli {

int on_all_processes(double timeout, const std::function<int(comm::Communicator*)>& body) {
  const auto launched = comm::mpi::launched();
  if (!launched || launched->size < 2) return body(nullptr);
  comm::mpi::Session session({.timeout = timeout});
  comm::Communicator world = session.communicator();
  // The launcher takes the code of whichever process ends first, and ends the others: one of them reports before the
  // session ends, for which all wait.
  const auto report_once = [&](const Error& e, bool cause) {
    const auto verdict = session.settle_failure(cause, e.kind() == Error::Kind::request ? 2 : 1);
    return verdict.reports ? report(e) : verdict.exit_code;
  };
  if (world.rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) fail("/dev/null cannot be opened");
  try {
    return body(&world);
  } catch (comm::Aborted& e) {
    return report_once(e.within(fmt::format("rank {}", world.rank())), false);
  } catch (Error& e) {
    world.abort(e.message());
    // What is wrong with a request is no rank's own, and what all meet together has named the rank where it began.
    if (e.kind() != Error::Kind::request && dynamic_cast<const train::SharedFailure*>(&e) == nullptr)
      e.within(fmt::format("rank {}", world.rank()));
    return report_once(e, true);
  }
}

}  // namespace trireme::cli
