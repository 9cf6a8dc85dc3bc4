#pragma once
#include <map>
#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"

namespace trireme::planner {

// How each op within a stage is sharded over one axis, chosen together: every op offers the strategies that its factors
// allow (ir/factors.h), a value that is made in one sharding and read in another costs its resharding once, and the sum
// of kernels and collectives is the least there is. An integer program, solved exactly.
//
//   matmul "b s k, n k -> b s n"     strategies: whole; b; s; n (columns); k (rows, a partial sum)
//
// Layers that are the same choose the same: `graphs` may be those of a model of three. What comes out are annotations
// of parameters, from which the rest follows as it does for a person's.
struct ShardingChoice {
  std::vector<passes::Annotation> annotations;  // empty: nothing is gained by sharding
  double seconds = 0;                           // of a micro-batch
  std::size_t strategies = 0;                   // that were offered
};

struct StrategyOptions {
  std::string axis = "tp";  // of plan.mesh, its only one
  double state_share = 0;   // of all parameters' bytes that a rank may store; 0: no limit
  // A person's: a parameter that one of them shards over the axis stays so.
  std::vector<passes::Annotation> annotations = {};
};

// Refuses where this build has no integer solver.
ShardingChoice choose_shardings(const compiler::Graphs& graphs, const compiler::Plan& plan,
                                const cluster::Cluster& cluster, const StrategyOptions& options = {});

}  // namespace trireme::planner
