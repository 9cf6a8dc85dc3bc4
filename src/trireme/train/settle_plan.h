#pragma once
#include "trireme/comm/communicator.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// The plan of a run. Where several processes make it, the first one decides and the others follow its decisions: their
// own would differ where their machines do, by CPU, by threads or by GPUs. It decides for as many threads as any of
// them has, since workspaces grow with them and memory.limit is for all. Each keeps its own number of threads, and its
// own staging where that is smaller. Collective over `world`; null: there is one process.
Planned settle_plan(const Config& config, const Registry& registry, const CompileOptions& options,
                    comm::Communicator* world);

}  // namespace trireme::train
