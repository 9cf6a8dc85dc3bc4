#pragma once
#include <functional>
#include <optional>

#include "trireme/cluster/cluster.h"
#include "trireme/core/log.h"
#include "trireme/train/compile.h"

namespace trireme::train {

struct OnClusterOptions {
  int ranks = 1;            // for parallel.mesh = "auto" and "*"
  bool step_alone = false;  // as of CompileOptions
  bool resolved = false;    // the model's shape is known (resolve_shape)
  std::optional<Decisions> decided = {};
  std::function<void(const char* phase)> on_phase = {};  // "reading data", "compiling"
  LogSink log = {};
};

// A configuration, compiled for a cluster that need not be here.
struct OnCluster {
  Config config;  // resolved
  Planned planned;
  Compiled compiled;
  cluster::Cluster cluster;  // runtime.link, where it emulates one, in the place of its links
  bool foreign = false;      // this build has no kernels for the cluster's devices: workspaces are those of a CPU
  double tokens = 0;         // of a step; images count as one each
  bool images = false;
};

// Data is opened only where the model's shape depends on it. On a cluster of GPUs the programs are a GPU's where this
// build has its kernels and can lower them, else a CPU's. Refuses, by key, what the configuration cannot have there.
OnCluster compile_on(Config config, const Registry& registry, cluster::Cluster cluster,
                     const OnClusterOptions& options = {});

// Puts an emulated link (runtime.link; empty: none) in the place of a CPU's own.
void emulate_link(cluster::Cluster& cluster, const std::string& link);

// Fills in what the data and the family decide of the model's shape.
void resolve_shape(Config& config, const Registry& registry, const OnClusterOptions& options = {});

// Where `trireme calibrate` keeps this machine's description: $XDG_CACHE_HOME/trireme/cluster.toml, or under ~/.cache.
std::string own_cluster_file();

}  // namespace trireme::train
