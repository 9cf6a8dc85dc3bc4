#pragma once
#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::comm::threads {

struct WorldOptions {
  std::string link = {};  // "": memory; else an emulated link (link.h)
  double timeout = 60;    // seconds that a call may wait
  std::shared_ptr<const Tuning> tuning = nullptr;
};

struct WorldGroup;

// Ranks that are threads of this process. Collectives read and write each other's memory: nothing is copied on the way.
class World {
 public:
  explicit World(int ranks, const WorldOptions& options = {});

  // Once per rank, from any thread; communicators keep the world alive.
  Communicator communicator(int rank);
  // From outside the ranks, a signal handler's thread for example. See Communicator::abort.
  void abort(const std::string& why);

 private:
  std::shared_ptr<WorldGroup> group_;
};

// Runs `body` on `ranks` new threads and returns when all have ended. If one throws, the others are aborted and
// the first error, with its rank, is thrown here.
//
//   run(4, {}, [&](Communicator& comm) { comm.barrier(); });
void run(int ranks, const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace trireme::comm::threads
