#pragma once
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// adaptive_scale(scale f32[], good f32[], bad f32[], finite f32[])
//   window=2000 low=1.0 high=2^32 → scale', good', bad' (all f32 [])
//
// A factor that feels its way to the largest that works. finite ≠ 0: good' = good + 1, and when that reaches the
// window, scale' = 2·scale, at most high, and good' = 0. finite = 0: scale' = scale / 2, at least low, good' = 0, bad'
// = bad + 1. So `good` counts successes since the scale last changed, `bad` all failures. In place on the first three.
ir::OpDef adaptive_scale_def();

struct AdaptiveScale {
  std::int64_t window = 2000;
  double low = 1;
  double high = 0x1p32;
};

}  // namespace trireme::ops
