#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// add(a, b) → a + b in a's dtype. b has a's shape, a suffix of it (repeated over the leading dimensions) or shape [].
// In place on a.
ir::OpDef add_def();

// add_n(x0, x1, …) → their sum, added in order; one or more operands of one type. In place on x0.
ir::OpDef add_n_def();

// accumulate(acc, x) → acc + x of acc's type; x has acc's shape and any compute dtype. In place on acc.
ir::OpDef accumulate_def();

}  // namespace trireme::ops
