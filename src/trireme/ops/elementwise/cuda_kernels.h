#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_elementwise_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_add_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_n_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mul_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_scale_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_relu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_relu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gelu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gelu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_silu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_silu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_swiglu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_swiglu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cast_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_fill_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_select_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
