#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// Losses between tensors of one type; the sum runs over all elements. Attribute of all: scale = 1.0.
//
// mean_absolute_error(pred, target) → loss = scale · Σ |pred − target|
// mean_absolute_error_grad(pred, target, dloss f32 []) → dpred = dloss · scale · sign(pred − target)
// squared_error(pred, target) → loss = scale · Σ (pred − target)²
// squared_error_grad(pred, target, dloss f32 []) → dpred = 2 · dloss · scale · (pred − target)
//
// The gradient of target is −dpred. The gradients are in place on pred or target.
ir::OpDef mean_absolute_error_def();
ir::OpDef mean_absolute_error_grad_def();
ir::OpDef squared_error_def();
ir::OpDef squared_error_grad_def();

std::shared_ptr<device::Kernel> prepare_mean_absolute_error_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_squared_error_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_squared_error_grad_cpu(const ir::KernelSpec& spec);
std::size_t regression_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
