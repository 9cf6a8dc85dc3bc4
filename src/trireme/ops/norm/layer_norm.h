#pragma once
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// layer_norm(x, weight f32[d], bias? f32[d], residual?) eps=1e-5 → y, mean, rstd [, sum]
//
// Normalises the last dimension (of extent d) of s = x, or s = x + residual:
//   y = (s − mean)·rstd·weight + bias,  rstd = 1/√(variance + eps)
// y has x's type; mean and rstd are f32 with x's leading dimensions. With a residual of x's type the fourth output is
// s, rounded to x's dtype before the statistics are taken.
ir::OpDef layer_norm_def();

// layer_norm_grad(s, weight, mean, rstd, dy, dsum?) has_bias=true total="none" → dx, dweight f32 [, dbias f32] [,
// total] dx is the gradient of s, plus dsum (what reaches s by other ways) when given. In place on s, dy or dsum. With
// total = "same" (dx's type) or "f32" the last output is the sum of dx, as it is rounded, over all rows: the gradient
// of a bias that was added to s.
ir::OpDef layer_norm_grad_def();

}  // namespace trireme::ops
