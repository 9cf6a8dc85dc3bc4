#pragma once
#include <array>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// conv2d(x[n,h,w,c], w[k,r,s,c/groups], bias[k]?) → y[n,p,q,k]
//
//   y[n,p,q,k] = bias[k] + Σ x[n, p·stride − padding + r·dilation, …, c] · w[k,r,s,c]
//
// over the channels c of k's group; outside the image x is 0. Attributes: stride, padding and dilation, each [height,
// width] (a slice of an image has a padding of [top, left, bottom, right]), groups, which divides c and k (groups = c:
// depthwise), and tf32 as matmul has it. p = (h + 2·padding − (r−1)·dilation − 1) / stride + 1. x and w have one dtype,
// sums are f32.
ir::OpDef conv2d_def();

// conv2d_grad_input(dy, w) → dx, with the attributes of conv2d and the input's height and width.
ir::OpDef conv2d_grad_input_def();

// conv2d_grad_weight(x, dy) → dw, with the attributes of conv2d, kernel = [r, s], and out = same | f32.
ir::OpDef conv2d_grad_weight_def();

struct ConvOptions {
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
};
ir::Value conv2d(ir::Value x, ir::Value weight, ir::Value bias = {}, const ConvOptions& options = {});

}  // namespace trireme::ops
