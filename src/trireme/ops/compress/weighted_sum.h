#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

namespace trireme::ops {

// weighted_sum(a? f32, b, times? f32[], over? f32[]) a_weight=1.0 b_weight=1.0 shape=[…] → f32 of that shape
//
//   a_weight · a + (b_weight · times / over) · b
//
// a and b have as many elements as the shape; b is f32, bf16 or f16. In place on a.
ir::OpDef weighted_sum_def();

std::shared_ptr<device::Kernel> prepare_weighted_sum_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
