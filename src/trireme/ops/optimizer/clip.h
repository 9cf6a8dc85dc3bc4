#pragma once
#include <cstdint>
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// sum_squares(x) → f32 [], the sum of x², accumulated in f64 over chunks that depend on the size alone.
ir::OpDef sum_squares_def();

// sum_squares_part(x, before? f64[]) last=false → f64 [], the sum of x² and of what came `before`; f32 [] for the last
// piece. Over pieces of kSumChunk elements, or a multiple, it gives the bits that sum_squares gives for the whole.
ir::OpDef sum_squares_part_def();
inline constexpr std::int64_t kSumChunk = 16384;

// clip_scale(total f32[], loss f32[], unit? f32[]) max_norm=1.0 → norm, factor, finite (all f32 []).
// For gradients that are `unit` times as large as they should be (absent: 1), of which total is the sum of squares:
// norm = √total / unit; factor = min(1, max_norm / (norm + 1e-6)) / unit, or 1 / unit when max_norm is 0; finite is 1
// when both total and loss are finite, else 0 (and then factor is 0).
ir::OpDef clip_scale_def();

}  // namespace trireme::ops
