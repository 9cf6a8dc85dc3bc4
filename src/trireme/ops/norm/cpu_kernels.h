#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// The CPU kernels of this folder's ops, for their definitions.
namespace trireme::ops {

std::size_t batch_norm_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_cpu(const ir::KernelSpec& spec);
std::size_t batch_norm_grad_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_channel_moments_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_joint_squares_cpu(const ir::KernelSpec& spec);
std::size_t batch_norm_given_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_given_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_sums_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_dx_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_layer_norm_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rms_norm_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cpu(const ir::KernelSpec& spec);
std::size_t layer_norm_grad_workspace(const ir::KernelSpec& spec);
std::size_t rms_norm_grad_workspace(const ir::KernelSpec& spec);

}  // namespace trireme::ops
