#pragma once
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// transpose(x) perm=[…] → y with dimension i being x's dimension perm[i], any dtype.
ir::OpDef transpose_def();
ir::Value transpose(ir::Value x, const std::vector<std::int64_t>& perm);

}  // namespace trireme::ops
