#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// embedding(tokens i32 [...], table [V,D]) → [...,D] of table's type: row `token` of the table for each token. A token
// outside [0, V) fails, naming it and its position.
ir::OpDef embedding_def();
ir::Value embedding(ir::Value tokens, ir::Value table);

// embedding_grad(tokens, dy [...,D]) → [V,D]: row t is the sum of dy over the positions that hold token t, in their
// order; other rows are zero. Attributes: vocab = V, out = "same" (dy's type) | "f32". Accumulates.
ir::OpDef embedding_grad_def();

std::shared_ptr<device::Kernel> prepare_embedding_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_embedding_grad_cpu(const ir::KernelSpec& spec);
std::size_t embedding_grad_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
