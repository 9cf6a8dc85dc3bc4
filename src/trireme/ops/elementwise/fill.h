#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// fill() value=0.0 shape=[] dtype="f32" → a tensor of one value. No operands: use ir::Builder::constant or
// ir::GradientContext::zeros.
ir::OpDef fill_def();

}  // namespace trireme::ops
