#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// slice(x) dim=0 start=0 end=0 → elements [start, end) of one dimension, any dtype.
ir::OpDef slice_def();
ir::Value slice(ir::Value x, int dim, std::int64_t start, std::int64_t end);

// slice_grad(dy) dim=0 start=0 extent=0 → zeros with dy at [start, start + dy's extent) of a dimension of `extent`.
ir::OpDef slice_grad_def();

// slice_update(x, part) dim=0 start=0 → x, but for [start, start + part's extent) of one dimension, which is `part`. In
// place it touches nothing else.
ir::OpDef slice_update_def();

// concat(x0, x1, …) dim=0 → the operands one after another along one dimension; one dtype, other dimensions equal.
ir::OpDef concat_def();
ir::Value concat(std::vector<ir::Value> xs, int dim);

}  // namespace trireme::ops
