#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_gated_linear_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gated_linear_grad_cuda(const ir::KernelSpec& spec);
std::size_t gated_linear_workspace_cuda(const ir::KernelSpec& spec);
std::size_t gated_linear_grad_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
