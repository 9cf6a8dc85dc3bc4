#pragma once
#include <vector>

#include "trireme/cli/work_progress.h"
#include "trireme/planner/calibrate.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// This machine, with the kernels of these configurations among those measured. Quickly: they alone, without the grid
// of matrix products.
enum class Calibration { whole, quick };
cluster::Cluster calibrated(const std::vector<train::Config>& configs, const train::Registry& registry,
                            device::Kind device, WorkProgress& progress, Calibration how = Calibration::whole);

// Keeps it where simulate, plan and fit look for this machine, or in a file.
void keep_calibration(const cluster::Cluster& cluster, const std::string& file);

}  // namespace trireme::cli
