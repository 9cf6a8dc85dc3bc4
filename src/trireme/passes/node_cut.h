#pragma once
#include <span>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// What becomes of a node whose operands are cut: how it takes them, and how its outputs come out. Follows from the op's
// factors and from whether sums go through it.
//
//   %y = matmul(%x [dp,_,_], @w)           takes them as they are     →  %y [dp,_,_]
//   %dw = matmul(%dy [dp,_,_], %x [dp,_,_], trans_a)                  →  %dw partial(sum:dp)
//   %s = sum_squares(@w/grad partial(sum:dp))   takes it whole        →  %s
struct NodeCut {
  std::vector<ir::Sharding> inputs;  // as the node takes them; absent operands: whole
  std::vector<ir::Sharding> outputs;
  std::string whole_axis = {};  // an axis that cuts a factor marked whole, which the op's partition function allows
};

// `operands` are the shardings of the node's inputs as they come. Types are global.
NodeCut cut_node(const ir::Node& node, const ir::Types& inputs, const ir::Types& outputs,
                 std::span<const ir::Sharding> operands);

// What one rank holds of a value. Refuses extents that do not divide, naming `name`.
TensorType local_type(const TensorType& type, const ir::Sharding& sharding, const ir::Mesh& mesh,
                      const std::string& name);

}  // namespace trireme::passes
