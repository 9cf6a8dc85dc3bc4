#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// The CPU kernels of this folder's ops, for their definitions.
namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_add_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_accumulate_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_n_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cast_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_fill_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gelu_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gelu_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mul_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_scale_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_relu_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_relu_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_select_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_silu_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_silu_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_swiglu_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_swiglu_grad_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
