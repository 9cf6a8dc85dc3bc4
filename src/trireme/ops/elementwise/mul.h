#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// mul(a, b) → a · b element by element in a's dtype; b broadcasts as in `add`. In place on a.
ir::OpDef mul_def();
ir::Value mul(ir::Value a, ir::Value b);

// scale(x) factor=1.0 → factor · x. In place.
ir::OpDef scale_def();
ir::Value scale(ir::Value x, double factor);

}  // namespace trireme::ops
