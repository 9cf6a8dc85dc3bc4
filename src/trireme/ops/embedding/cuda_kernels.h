#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_embedding_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_embedding_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_embedding_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_local_tokens_cuda(const ir::KernelSpec& spec);

std::size_t embedding_grad_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
