#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// dropout(x, rng i64[3] = {seed, step, first row}) p=0.1 site=0 → x/(1−p) where kept, else 0; kept with probability
// 1−p.
//
// Row r of x (dimension 0) is row `first row` + r of the global batch; an element is kept or not by its index within
// the row, so the mask is the same however the batch is split or when it is drawn again. `site` tells two dropouts
// apart (site_of their names). In place. The gradient is dropout itself with the same rng and attributes.
ir::OpDef dropout_def();

}  // namespace trireme::ops
