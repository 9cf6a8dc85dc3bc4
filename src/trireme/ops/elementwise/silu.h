#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// silu(x) → x · sigmoid(x). In place.
ir::OpDef silu_def();

// silu_grad(x, dy) → dy · silu'(x). In place on either.
ir::OpDef silu_grad_def();

// swiglu(gate, up) → silu(gate) · up. In place on either.
ir::OpDef swiglu_def();

// swiglu_grad(gate, up, dy) → dgate, dup. Each in place on any operand.
ir::OpDef swiglu_grad_def();

}  // namespace trireme::ops
