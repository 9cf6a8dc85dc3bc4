#pragma once
#include <array>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// All poolings take images [n,h,w,c] and the attributes kernel, stride and padding, each [height, width]. The padding
// is at most half the kernel, so that no window lies outside the image. That of a slice of an image is [top, left,
// bottom, right].

// max_pool2d(x) → y[n,p,q,c], index i32[n,p,q,c]
// The largest value of each window, and where it is: h·width + w. The first one wins; NaN wins over all. Of a slice
// that begins at origin = [h, w] of an image of whole_width pixels a row, the index is that of the image.
ir::OpDef max_pool2d_def();
// max_pool2d_grad(dy, index) → dx, with the input's height and width: dy goes to where index says. With the pooling's
// kernel, stride and padding given, that is within the window; kernel [0,0]: anywhere.
ir::OpDef max_pool2d_grad_def();

// avg_pool2d(x) → y. Windows are divided by the kernel's size, or by the number of values inside the image with
// count_include_pad = false.
ir::OpDef avg_pool2d_def();
// avg_pool2d_grad(dy) → dx, with avg_pool2d's attributes and the input's height and width.
ir::OpDef avg_pool2d_grad_def();

// global_avg_pool(x[n,h,w,c]) → [n,c]: the mean of each channel. Given by `reduce`.
ir::OpDef global_avg_pool_def();

struct PoolOptions {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
};
ir::Value max_pool2d(ir::Value x, const PoolOptions& options);
ir::Value avg_pool2d(ir::Value x, const PoolOptions& options, bool count_include_pad = true);
ir::Value global_avg_pool(ir::Value x);

}  // namespace trireme::ops
