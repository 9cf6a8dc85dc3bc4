#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// relu(x) → max(x, 0). In place. NaN stays NaN.
ir::OpDef relu_def();

// relu_grad(y, dy) → dy where y > 0, else 0; y is relu's output or its input. In place on either.
ir::OpDef relu_grad_def();

}  // namespace trireme::ops
