#include "trireme/cli/processes.h"

#include <cstdio>
#include <exception>

#include "trireme/cli/output.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/train/culprit.h"

namespace trireme::cli {

namespace {

comm::mpi::Launched launch() { return comm::mpi::launched().value_or(comm::mpi::Launched{}); }

}  // namespace

int launched_processes() { return launch().size; }
int processes_here() { return launched_processes() > 1 ? launch().here : 0; }
bool is_first_process() { return launch().rank == 0; }

int report_from_one(const Error& e) {
  if (launched_processes() < 2) return report(e);
  if (!comm::mpi::available()) return is_first_process() ? report(e) : 2;
  try {
    return on_all_processes([&]() -> double { throw e; }, {});
  } catch (const Error& other) {
    return report(other);
  }
}

int on_all_processes(double timeout, const std::function<int(comm::Communicator*)>& body) {
  return on_all_processes([&] { return timeout; }, body);
}

int on_all_processes(const std::function<double()>& prepare, const std::function<int(comm::Communicator*)>& body) {
  if (launched_processes() < 2) {
    prepare();
    return body(nullptr);
  }
  double timeout = comm::mpi::SessionOptions{}.timeout;
  std::exception_ptr unprepared;
  try {
    timeout = prepare();
  } catch (const Error&) {
    unprepared = std::current_exception();
  }
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
    if (unprepared) std::rethrow_exception(unprepared);
    return body(&world);
  } catch (comm::Aborted& e) {
    return report_once(train::within_rank(e, world.rank()), false);
  } catch (Error& e) {
    world.abort(e.message());
    // What is wrong with a request is no rank's own, and what all meet together has named the rank where it began.
    if (e.kind() != Error::Kind::request && dynamic_cast<const train::SharedFailure*>(&e) == nullptr)
      train::within_rank(e, world.rank());
    return report_once(e, true);
  }
}

}  // namespace trireme::cli
