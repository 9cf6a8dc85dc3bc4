#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_norm_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_layer_norm_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rms_norm_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_channel_moments_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_joint_squares_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_given_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_sums_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_dx_cuda(const ir::KernelSpec& spec);

std::size_t layer_norm_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t rms_norm_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t channel_moments_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_given_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_dx_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
