#pragma once
#include <cstddef>
#include <vector>

#include "trireme/cli/token_file.h"
#include "trireme/planner/calibrate.h"
#include "trireme/train/config.h"
#include "trireme/train/on_cluster.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// What kernels alone do not show of a step on this CPU: they take longer in one than in a replay (planner/replay.h),
// longer still next to other ranks, and more so where these take turns on the cores; and a thread that slept goes on
// late, on another core, and finds its data in the caches of that one. A few steps of small models are run by one rank,
// over dp, over dp with more ranks than cores, over tp, over tp with an emulated link, and over pp and tp. Each of the
// constants is the one with which the simulated steps take as long as the measured ones in the mean.
class Waits {
 public:
  // Compiles what is run, and measures its kernels that the cluster does not have.
  Waits(const cluster::Cluster& cluster, const train::Registry& registry, const planner::CalibrateOptions& options);

  // Some steps of every run. A machine is faster at one moment than at another: several rounds, in turns with what the
  // constants are for, are of the same moments.
  void measure();
  // The cluster with the constants that the rounds show.
  cluster::Cluster fitted() const;

 private:
  struct Probe {
    std::size_t constant;
    train::Config config;
    train::OnCluster on;
    cluster::Cluster kernels;  // the cluster, with those of this run
    std::vector<double> steps;
  };

  cluster::Cluster cluster_;
  const train::Registry& registry_;
  planner::CalibrateOptions options_;
  TokenFile tokens_;
  std::vector<Probe> probes_;
};

}  // namespace trireme::cli
