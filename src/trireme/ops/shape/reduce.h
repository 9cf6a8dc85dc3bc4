#pragma once
#include <string>
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// reduce(x) kind="sum"|"mean"|"max" dims=[…] out="same"|"f32" → x without the dimensions `dims`, which are summed,
// averaged or searched for their maximum. Adds up in f32 (f64 along the last dimension) in an order that depends on the
// shape alone. The maximum has no gradient.
ir::OpDef reduce_def();
ir::Value reduce(ir::Value x, const std::vector<std::int64_t>& dims, const std::string& kind = "sum",
                 const std::string& out = "same");

// broadcast(x) shape=[…] dims=[…] → the inverse of reduce: a tensor of `shape`, whose dimensions `dims` repeat x and
// whose others are x's, any dtype.
ir::OpDef broadcast_def();
ir::Value broadcast(ir::Value x, const Shape& shape, const std::vector<std::int64_t>& dims);

}  // namespace trireme::ops
