#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_matmul_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_matmul_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gated_linear_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gated_linear_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_matmul_fp8_cuda(const ir::KernelSpec& spec);

std::size_t matmul_workspace_cuda(const ir::KernelSpec& spec);
std::size_t gated_linear_workspace_cuda(const ir::KernelSpec& spec);
std::size_t gated_linear_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t matmul_fp8_workspace_cuda(const ir::KernelSpec& spec);

// The library multiplies matrices whose sizes are multiples of 16, on GPUs since Ada.
bool supports_matmul_fp8_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
