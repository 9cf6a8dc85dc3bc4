#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "trireme/train/compile.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::train {

// Where a run would take place.
struct Site {
  int threads = 1;            // of a rank
  bool alone = true;          // all ranks are threads of this process
  int local_ranks = 0;        // else: those on this machine; 0: all
  int rank = 0;               // else: this process's own; machines have consecutive ranks
  std::uint64_t memory = 0;   // bytes that the host has; 0: as this machine says
  std::uint64_t outside = 0;  // that each process takes beyond the plan
  std::string plan = {};      // the file of the plan that must be followed; "": none
  // Else: bytes of one message between processes over MPI, which counts them in an int; NCCL's have no limit.
  std::uint64_t largest_message = std::numeric_limits<std::int32_t>::max();
};

// Whether a rank's plan needs more than memory.limit: then it runs nowhere, whatever the machine has.
bool exceeds_limit(const Config& config, const Compiled& compiled);

// Why a compiled run cannot take place here, as sentences that name what is needed and what there is: memory.limit
// first, this machine's memory, the number of threads. Empty: it can.
std::vector<std::string> shortfalls(const Config& config, const Registry& registry, const Compiled& compiled,
                                    const Site& site);

// The same of a trained model that is used, which memory.limit does not concern.
std::vector<std::string> shortfalls_of_use(const Compiled& compiled, const Site& site);

}  // namespace trireme::train
