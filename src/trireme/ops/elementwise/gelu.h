#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// gelu(x) tanh=false → x·Φ(x), Φ the normal distribution function; with tanh, the usual approximation of it. In place.
ir::OpDef gelu_def();

// gelu_grad(x, dy) tanh=false → dy · gelu'(x). In place on either.
ir::OpDef gelu_grad_def();

}  // namespace trireme::ops
