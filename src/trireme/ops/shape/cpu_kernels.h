#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// The CPU kernels of this folder's ops, for their definitions.
namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_broadcast_cpu(const ir::KernelSpec& spec);
std::size_t reduce_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_reduce_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_grad_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_update_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_concat_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_transpose_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
