#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// reshape(x) shape=[…] → the same elements, in the same order, under another shape. A view: nothing is copied. One
// extent may be -1: whatever is left.
ir::OpDef reshape_def();
ir::Value reshape(ir::Value x, const Shape& shape);

}  // namespace trireme::ops
