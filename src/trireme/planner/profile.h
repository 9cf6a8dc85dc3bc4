#pragma once
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"
#include "trireme/planner/piece_bytes.h"
#include "trireme/planner/remat_policy.h"

namespace trireme::planner {

// A layer of the model on one rank: seconds and bytes of one micro-batch.
struct LayerCost {
  double forward = 0;  // kernels, and the collectives over tp that stand between them
  double backward = 0;
  double weight_gradient = 0;
  double communication = 0;  // the collectives' part of these
  double saved = 0;          // bytes that wait for the backward pass
  double transient = 0;      // the largest operands and results of one kernel, and what is recomputed for the layer
  double message = 0;        // bytes that the next layer is given
  StateBytes state = {};
  StateBytes tied = {};  // state that an earlier layer has too
};

struct Profile {
  std::vector<LayerCost> layers;
  double update_per_byte = 0;  // seconds of the update, by byte of state
  LayerCost total() const;
};

// Extrapolates costs that grow linearly: the result is two + further · (two − one), layer by layer.
Profile extended(const Profile& one, const Profile& two, double further);

// What the layers of a model cost, read off its graphs after the passes that make them a rank's own: `plan` has a mesh
// of tp alone, and no stages; `remat` must need no budget. A layer in the middle of the model that is the same as its
// neighbours stands for as many as `layers` says there are: the graphs may be those of a model of three.
//
// The seconds are those of the simulator's kernels and collectives, one after the other. Nothing is lowered.
Profile profile_of(const compiler::Graphs& graphs, compiler::Plan plan, const RematPolicy& remat,
                   const cluster::Cluster& cluster, std::int64_t layers);

}  // namespace trireme::planner
