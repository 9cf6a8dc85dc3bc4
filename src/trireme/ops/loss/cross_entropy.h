#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// cross_entropy(logits [...,V], targets i32 [...]) → loss f32 [], lse f32 [...]
//
// loss = scale · Σ (lse − logits[target]) with lse = log Σ exp(logits) of a row; rows with a negative target do not
// count. A target of V or more fails, naming it and its position. Attribute: scale = 1.0.
ir::OpDef cross_entropy_def();

// cross_entropy_grad(logits, targets, lse, dloss f32 []) → dlogits = dloss · scale · (softmax − onehot), in place on
// logits.
ir::OpDef cross_entropy_grad_def();

std::shared_ptr<device::Kernel> prepare_cross_entropy_cpu(const ir::KernelSpec& spec);
std::size_t cross_entropy_workspace_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cross_entropy_grad_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
