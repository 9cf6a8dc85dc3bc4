#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_compress_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_weighted_sum_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_pack_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_unpack_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_take_largest_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_taken_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_keep_largest_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_ramp_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_orthonormalise_cuda(const ir::KernelSpec& spec);

std::size_t take_largest_workspace_cuda(const ir::KernelSpec& spec);
std::size_t keep_largest_workspace_cuda(const ir::KernelSpec& spec);
std::size_t orthonormalise_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
