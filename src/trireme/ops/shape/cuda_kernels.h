#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_shape_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_transpose_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sequence_slice_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_update_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_concat_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_reduce_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_broadcast_cuda(const ir::KernelSpec& spec);

std::size_t reduce_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
