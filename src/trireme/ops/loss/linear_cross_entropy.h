#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// cross_entropy(x · weightᵀ, targets) without the logits ever existing as a whole: rows are taken in chunks, and while
// a chunk's logits are there, the gradients are computed from them.
//
//   operands    x [...,D], weight [V,D] of x's type, targets i32 [...]; a negative target is ignored, a target of V or
//               more fails, naming it and its position; dloss? f32 []: the gradient of the loss, absent: 1
//   attributes  scale = 1.0
//               out = "same" | "f32": the type of dweight, x's or f32; sums are f32 either way
//               with_gradients = false: set by the op's own gradient
//               chunk = 0: rows at a time; 0: as many as keep the logits of a chunk at a few MiB, at least 128
//               tf32 = false: as matmul has it
//   outputs     loss f32 [] = scale · Σ (log Σ exp(logits) − logits[target]), and with gradients
//               dx of x's type and dweight, both for dloss as the gradient of the loss
ir::OpDef linear_cross_entropy_def();

std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_cpu(const ir::KernelSpec& spec);
std::size_t linear_cross_entropy_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
