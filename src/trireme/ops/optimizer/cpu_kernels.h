#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// The CPU kernels of this folder's ops, for their definitions.
namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_adaptive_scale_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_adamw_cpu(const ir::KernelSpec& spec);
std::size_t sum_squares_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sum_squares_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_clip_scale_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sgd_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
