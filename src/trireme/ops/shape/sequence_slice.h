#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// sequence_slice(x, position? i32 []) dim=0 extent=0 → elements position … position + extent − 1 of a dimension that
// runs along the sequence, any dtype. Without a position: from its beginning. Where the dimension ends before that, its
// last element is repeated, so that a sequence padded past the end can be read. The gradient is that without a
// position.
ir::OpDef sequence_slice_def();

}  // namespace trireme::ops
