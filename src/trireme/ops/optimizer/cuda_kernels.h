#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_optimizer_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_adamw_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sgd_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_descend_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sum_squares_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_clip_scale_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_adaptive_scale_cuda(const ir::KernelSpec& spec);

std::size_t sum_squares_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
