#pragma once
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// rms_norm(x, weight f32[d], residual?) eps=1e-5 → y, rstd [, sum]
//
// As layer_norm without mean and bias: y = s·rstd·weight, rstd = 1/√(mean of s² + eps), s = x or x + residual.
ir::OpDef rms_norm_def();

// rms_norm_grad(s, weight, rstd, dy, dsum?) → dx (plus dsum), dweight f32. In place on s, dy or dsum.
ir::OpDef rms_norm_grad_def();

}  // namespace trireme::ops
