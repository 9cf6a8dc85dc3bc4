#pragma once
#include "trireme/planner/calibrate.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// What it costs ranks on this CPU to wait for each other, which no kernel shows: a thread that slept goes on late, on
// another core, and finds its data in the caches of that one. A few steps are run of a small model that waits a lot:
// over tp, over dp with ZeRO-3 while it computes, and with more ranks than cores. Each of three constants is the one
// with which the simulated step takes as long.
void fit_waits(cluster::Cluster& cluster, const train::Registry& registry, const planner::CalibrateOptions& options);

}  // namespace trireme::cli
