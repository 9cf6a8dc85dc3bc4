#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/device/kernel.h"
#include "trireme/program/program.h"

namespace trireme::planner {

struct CalibrateOptions {
  device::Kind device = device::Kind::cpu;
  std::vector<int> threads = {};                       // of a rank; empty: one, and all cores
  std::vector<const program::Program*> programs = {};  // whose kernels are measured
  std::vector<int> ranks = {2, 4};                     // of collectives
  bool products = true;                                // a grid of matrix products
  // Of a CPU: seconds after which no further program's kernels are measured.
  double limit = std::numeric_limits<double>::infinity();
  double budget = 0.25;  // of a CPU: seconds that each program is run for, alone and not
  std::function<void(const std::string& what, std::size_t done, std::size_t total)> on_progress = {};
};

// This machine as a cluster of one node: what its cores, memory, kernels and collectives were measured to do. Nothing
// is looked up.
cluster::Cluster calibrate(const CalibrateOptions& options);

// Adds the kernels of further programs to a description.
void measure_kernels(cluster::Cluster& cluster, const CalibrateOptions& options);

}  // namespace trireme::planner
