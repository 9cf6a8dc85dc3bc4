#pragma once
#include "trireme/planner/calibrate.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// What kernels alone do not show of a step on this CPU: they take longer in one than in a replay (planner/replay.h),
// and longer still next to other ranks; and a thread that slept goes on late, on another core, and finds its data in
// the caches of that one. A few steps of a small model are run by one rank, over dp, over tp, over tp with an emulated
// link, and with more ranks than cores. Each of five constants is the one with which the simulated step takes as long.
void fit_waits(cluster::Cluster& cluster, const train::Registry& registry, const planner::CalibrateOptions& options);

}  // namespace trireme::cli
