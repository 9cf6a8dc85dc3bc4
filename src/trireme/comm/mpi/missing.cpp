#include "trireme/comm/mpi/session.h"

// In the place of session.cpp and transport.cpp where the build found no MPI.
namespace trireme::comm::mpi {
namespace {

[[noreturn]] void refuse_missing() {
  refuse(
      "this build has no MPI: install it (Debian and Ubuntu: libopenmpi-dev, openmpi-bin) and build again, or use "
      "the threads transport");
}

}  // namespace

struct Session::Impl {};

bool available() { return false; }
std::string version() { return ""; }
Session::Session(const SessionOptions&) { refuse_missing(); }
Session::~Session() = default;
int Session::rank() const { refuse_missing(); }
int Session::size() const { refuse_missing(); }
Communicator Session::communicator() { refuse_missing(); }
void Session::abort(const std::string&) { refuse_missing(); }
Session::Verdict Session::settle_failure(bool, int) { refuse_missing(); }

}  // namespace trireme::comm::mpi
