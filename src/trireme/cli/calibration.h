#pragma once
#include <vector>

#include "trireme/cli/work_progress.h"
#include "trireme/planner/calibrate.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// This machine, with the kernels of these configurations among those measured.
cluster::Cluster calibrated(const std::vector<train::Config>& configs, const train::Registry& registry,
                            device::Kind device, WorkProgress& progress);

}  // namespace trireme::cli
