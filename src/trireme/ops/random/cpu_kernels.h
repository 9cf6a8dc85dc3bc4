#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// The CPU kernels of this folder's ops, for their definitions.
namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_dropout_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_random_init_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
