#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"
#include "trireme/ops/norm/layer_norm.h"

namespace trireme::ops {

// rms_norm(x, weight f32[d], residual?) eps=1e-5 → y, rstd [, sum]
//
// As layer_norm without mean and bias: y = s·rstd·weight, rstd = 1/√(mean of s² + eps), s = x or x + residual.
ir::OpDef rms_norm_def();

// rms_norm_grad(s, weight, rstd, dy, dsum?) → dx (plus dsum), dweight f32. In place on s, dy or dsum.
ir::OpDef rms_norm_grad_def();

ir::Value rms_norm(ir::Value x, ir::Value weight, double eps = 1e-5);
NormWithSum rms_norm_residual(ir::Value x, ir::Value residual, ir::Value weight, double eps = 1e-5);

}  // namespace trireme::ops
