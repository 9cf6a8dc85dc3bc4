// One of the ranks that failure_test.cpp starts and hurts: adds up for ever, until rank 1 does what its argument says.
//   rank throw|throw-number|kill|stop|exit|quit TIMEOUT
#include <fmt/format.h>
#include <trireme/comm.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "trireme/comm/mpi/session.h"

namespace {

// As a user of the library would be one, whose exceptions may be of any type.
int add_up_until_a_number_is_thrown(double timeout) {
  try {
    trireme::run_ranks(1,
                       [](trireme::Communicator& comm) {
                         std::vector<float> v(1000, 1.0F);
                         for (int i = 0;; ++i) {
                           if (i == 30 && comm.rank() == 1) throw 42;
                           comm.all_reduce(std::span(v), trireme::ReduceOp::mean);
                         }
                       },
                       {.transport = "mpi", .timeout = timeout});
  } catch (const trireme::Error& e) {
    fmt::print(stderr, "error: {}\n", e.message());
  } catch (int number) {
    fmt::print(stderr, "error: {}\n", number);
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 3) return 2;
  const std::string deed = argv[1];
  if (deed == "throw-number") return add_up_until_a_number_is_thrown(std::atof(argv[2]));
  try {
    comm::mpi::Session session({.timeout = std::atof(argv[2]), .tuning = nullptr});
    comm::Communicator comm = session.communicator();
    try {
      std::vector<float> v(100'000, 1.0F);
      for (int i = 0;; ++i) {
        if (i == 30 && comm.rank() == 1) {
          if (deed == "throw") fail("the disk is full");
          if (deed == "kill") std::raise(SIGKILL);
          if (deed == "stop") std::raise(SIGSTOP);
          if (deed == "exit") std::_Exit(5);
        }
        if (i == 30 && deed == "quit") break;
        comm.all_reduce(std::span(v), comm::Reduce::mean,
                        {.algorithm = i % 2 == 0 ? comm::Algorithm::ring : comm::Algorithm::native, .name = "grads"});
      }
    } catch (const Error& e) {
      // Said before the session ends: then the launcher may end this process at any moment.
      fmt::print(stderr, "error: {}\n", e.message());
      comm.abort(e.message());
      return 1;
    }
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.message());
    return 1;
  }
  return 0;
}
