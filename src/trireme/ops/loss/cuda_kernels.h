#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_loss_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_accuracy_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cross_entropy_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cross_entropy_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_lse_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_given_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_lse_terms_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_join_lse_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_kl_divergence_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_kl_divergence_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_squared_error_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_squared_error_grad_cuda(const ir::KernelSpec& spec);

std::size_t accuracy_workspace_cuda(const ir::KernelSpec& spec);
std::size_t cross_entropy_workspace_cuda(const ir::KernelSpec& spec);
std::size_t linear_cross_entropy_workspace_cuda(const ir::KernelSpec& spec);
std::size_t linear_lse_workspace_cuda(const ir::KernelSpec& spec);
std::size_t linear_cross_entropy_given_workspace_cuda(const ir::KernelSpec& spec);
std::size_t kl_divergence_workspace_cuda(const ir::KernelSpec& spec);
std::size_t regression_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
