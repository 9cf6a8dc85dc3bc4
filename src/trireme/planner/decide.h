#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/compiler/compile.h"
#include "trireme/planner/memory_limit.h"
#include "trireme/planner/offload_policy.h"
#include "trireme/planner/remat_policy.h"

namespace trireme::planner {

// The memory settings of a run. They say what is wanted; the planner decides which values and states it means.
struct MemoryPolicy {
  RematPolicy remat = {};
  std::optional<OffloadPolicy> offload = {};
  std::uint64_t limit = 0;  // bytes that a device may use; 0: no limit
  // Staging of checkpoints gives way where the limit is short of it: decisions leave room for the least of it.
  bool staging_gives_way = true;
};

// Settles a plan: names the values with which the parts of a pipeline begin where the plan names none, the values that
// are recomputed and the values and states that are offloaded, trying steps under several plans where a limit leaves a
// choice. `plan` has everything else, with the mechanics of offload (tier, piece, update_on_host) in plan.offload where
// policy.offload is set. Where stages of equal time do not fit a limit, the cuts move. Under it zero-bubble:auto holds
// as many micro-batches as fit. Gives what the limit led to, if there was something to choose.
std::optional<Choice> decide(const compiler::Graphs& graphs, compiler::Plan& plan, const MemoryPolicy& policy);

// Completes a plan that names the offloaded states: it adds the readers for which a state is loaded a second time
// instead of staying on the device.
void decide_reloads(const compiler::Graphs& graphs, compiler::Plan& plan);
// All that such a plan could name, over the graphs of all roles: passes::reload_name of each reader of such a state.
std::vector<std::string> possible_reloads(const compiler::Graphs& graphs, const compiler::Plan& plan);

}  // namespace trireme::planner
