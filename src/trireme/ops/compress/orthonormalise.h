#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

namespace trireme::ops {

// orthonormalise(x f32[n,r]) → f32[n,r], r <= n: columns of length 1 at right angles, whose first k span what the first
// k of x span.
//
// Gram-Schmidt in f64, each column cleared twice of those before it. A column that depends on those before it becomes
// the first unit vector that does not. What is not finite stays so. In place.
ir::OpDef orthonormalise_def();

std::size_t orthonormalise_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_orthonormalise_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
