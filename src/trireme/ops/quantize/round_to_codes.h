#pragma once
#include "trireme/ir/op_def.h"
#include "trireme/ops/quantize/codes.h"

namespace trireme::ops {

// round_to_codes(x f32) bits=8 group=0 split=-1 → y of x's type
//
// x is a matrix whose rows are its dimensions before `split` (-1: the last is a row's); y is what its codes (codes.h,
// rounded to nearest) stand for. The gradient is that of the identity: straight through.
ir::OpDef round_to_codes_def();

std::shared_ptr<device::Kernel> prepare_round_to_codes_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
