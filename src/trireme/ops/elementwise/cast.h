#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// cast(x) to="bf16" → x in another dtype, any to any. Floats round to nearest even; floats to integers truncate.
ir::OpDef cast_def();
ir::Value cast(ir::Value x, DType to);

}  // namespace trireme::ops
