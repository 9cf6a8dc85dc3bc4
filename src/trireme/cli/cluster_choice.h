#pragma once
#include <string>

#include "trireme/cluster/cluster.h"

namespace trireme::cli {

// --cluster and --generation: a built-in cluster, a file, or where none is named this machine as it was calibrated.
// Refuses what there is not, with what there is.
cluster::Cluster chosen_cluster(const std::string& name, const std::string& generation);

// --tokens: "300B" → 3e11; K, M, B and T.
double parse_tokens(const std::string& text);

}  // namespace trireme::cli
