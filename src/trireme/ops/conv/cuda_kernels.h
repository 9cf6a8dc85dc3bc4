#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_conv_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_conv2d_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_grad_input_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_grad_weight_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_max_pool2d_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_max_pool2d_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_avg_pool2d_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_avg_pool2d_grad_cuda(const ir::KernelSpec& spec);

std::size_t conv2d_workspace_cuda(const ir::KernelSpec& spec);
std::size_t conv2d_grad_input_workspace_cuda(const ir::KernelSpec& spec);
std::size_t conv2d_grad_weight_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
