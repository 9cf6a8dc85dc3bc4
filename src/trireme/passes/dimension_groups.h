#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// Dimensions of states that belong together: slice i of one can be taken out only with slice i of all the others, and
// then the model is as before but for what the slice contributed. Found from the ops' factors alone (ir/factors.h):
// what carries the same factor goes together, and a factor that an op wants whole cannot lose slices. In a transformer
//
//   blocks.0.attn.qkv.weight dim 1, qkv.bias dim 1, proj.weight dim 1 (64 elements each)     its heads
//   blocks.0.mlp.up.weight dim 0, up.bias dim 0, down.weight dim 1                           its neurons
//
// and in a convolutional net channels: a convolution's outputs, its batch norm, the next one's inputs.
struct DimensionGroup {
  enum class Kind { heads, neurons, channels };  // of an attention; of convolutions; of neither
  struct Member {
    std::string state;
    int dim = 0;
    std::int64_t repeat = 1;  // elements of a slice along the dimension
    bool trained = false;
  };
  Kind kind = Kind::neurons;
  std::int64_t slices = 0;
  std::vector<Member> members;  // in the order of the states
};
const char* name_of(DimensionGroup::Kind kind);

// Those of the states that a forward graph reads, in the order of their first members. A group has a parameter that
// makes its slices and one that sums over them.
std::vector<DimensionGroup> dimension_groups(const ir::Module& module, const ir::Graph& graph);

}  // namespace trireme::passes
