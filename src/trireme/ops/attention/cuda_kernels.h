#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_attention_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_attention_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_attention_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_plain_attention_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_plain_attention_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cached_attention_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cached_attention_int8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_document_starts_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rotary_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_softmax_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_softmax_grad_cuda(const ir::KernelSpec& spec);

std::size_t attention_workspace_cuda(const ir::KernelSpec& spec);
std::size_t attention_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t plain_attention_grad_workspace_cuda(const ir::KernelSpec& spec);

bool supports_plain_attention_cuda(const ir::KernelSpec& spec);
bool supports_rotary_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
