#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_random_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_dropout_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_random_init_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
