#pragma once
#include <cstddef>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::planner {

// Bytes of state that a rank stores before any of it is sharded over replicas.
struct StateBytes {
  double masters = 0;  // parameters that have a copy in low precision
  double weights = 0;  // those copies, and parameters that have none
  double gradients = 0;
  double optimizer = 0;

  StateBytes& operator+=(const StateBytes& other);
  // What a rank stores under a stage of ZeRO over `replicas`.
  double sharded(int zero, int replicas) const;
};

// What a rank stores for a piece of a model, and what it saves of it for the backward pass of one micro-batch.
struct PieceBytes {
  double saved = 0;
  StateBytes state = {};
  StateBytes tied = {};  // state that an earlier piece has too
};

// Of a module with gradients and optimizer whose nodes have the numbers of their pieces as stages; what comes behind
// the last piece counts with it.
std::vector<PieceBytes> piece_bytes(const ir::Module& module, std::size_t pieces);

}  // namespace trireme::planner
