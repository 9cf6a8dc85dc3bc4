#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// select(flag f32[], a, b) → a if flag is not 0, else b. a and b have one type, of any dtype. In place on either.
ir::OpDef select_def();
ir::Value select(ir::Value flag, ir::Value a, ir::Value b);

}  // namespace trireme::ops
