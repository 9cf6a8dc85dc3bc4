#pragma once
#include <limits>
#include <vector>

#include "trireme/cli/work_progress.h"
#include "trireme/planner/calibrate.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// This machine, with the kernels of these configurations among those measured; of them the first must compile, and
// others that do not are left out. Quickly: they alone, without the grid of matrix products, and of a CPU those that
// come within `limit` seconds.
enum class Calibration { whole, quick };
cluster::Cluster calibrated(const std::vector<train::Config>& configs, const train::Registry& registry,
                            device::Kind device, WorkProgress& progress, Calibration how = Calibration::whole,
                            double limit = std::numeric_limits<double>::infinity());

// The same without what waiting costs on a CPU (waits.h), and how it was measured, for that.
struct MeasuredKernels {
  cluster::Cluster cluster;
  planner::CalibrateOptions options;
};
MeasuredKernels measured_kernels(const std::vector<train::Config>& configs, const train::Registry& registry,
                                 device::Kind device, WorkProgress& progress, Calibration how = Calibration::whole,
                                 double limit = std::numeric_limits<double>::infinity());

// A configuration on one rank and on so many, with few and more rows, sharded over dp and tp: what decides which
// kernels its plans have.
std::vector<train::Config> with_usual_plans(const train::Config& config, const train::Registry& registry, int ranks);

// Keeps it where simulate, plan and fit look for this machine, or in a file.
void keep_calibration(const cluster::Cluster& cluster, const std::string& file);

}  // namespace trireme::cli
