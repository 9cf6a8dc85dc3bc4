#pragma once
#include <cstdint>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

inline bool is_gradient(ir::Phase phase) {
  return phase == ir::Phase::input_gradient || phase == ir::Phase::weight_gradient;
}

// For each value, the value whose bytes it has: itself, or what it is a view of.
std::vector<ir::ValueId> storage_of(const ir::Graph& graph);

// What is kept from the forward phase for the gradients: bytes that a forward node makes and a gradient node reads.
struct SavedValue {
  ir::ValueId value = ir::kNone;      // owns the bytes; made by a forward node
  std::int32_t producer = ir::kNone;  // index of that node
  std::int32_t last_forward = 0;      // index of the last forward node that touches the bytes, directly or as a view
  std::vector<std::int32_t> readers;  // indices of the gradient nodes that read them, rising
};

// In the order they are made. Graph inputs and states are not among them: nobody has to keep those.
//
//   %u = matmul(%x, @w)                          saved: %u (read by relu_grad), %a (read by the last matmul)
//   %a = relu(%u)
//   …
//   %du = relu_grad(%u, %da)             input_gradient
//   %dv = matmul(%a, %dy, trans_a)       weight_gradient
std::vector<SavedValue> saved_values(const ir::Graph& graph);

}  // namespace trireme::passes
