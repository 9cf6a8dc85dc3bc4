#pragma once
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// batch_norm(x[…,c], weight f32[c], bias f32[c], running_mean f32[c], running_var f32[c], residual?)
//   training=true momentum=0.1 eps=1e-5 activation="none"|"relu" → y, mean, rstd, new_running_mean, new_running_var
//
// Normalises each channel (last dimension) over all the others: y = act((x − mean)·rstd·weight + bias + residual). In
// training the statistics are the batch's, and the running ones move towards them by `momentum` (the variance unbiased,
// as PyTorch has it). Otherwise the running statistics normalise and are passed on unchanged.
// In place: y on x or residual, the new running statistics on the old.
ir::OpDef batch_norm_def();

// batch_norm_grad(x, weight, mean, rstd, dy, bias?, y?, more?) training=true activation="none"|"relu" total=false
//   → dx, dweight f32, dbias f32 [, total]
//
// What comes in is dy + more. With an activation it passes where y is positive or, y being absent, where x, weight and
// bias say that it was. total=true: what passed is an output too, the gradient of the residual; `more` needs it.
// In place: dx on x or dy, total on dy or more.
ir::OpDef batch_norm_grad_def();

}  // namespace trireme::ops
