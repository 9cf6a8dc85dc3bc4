#pragma once
#include <array>
#include <cstdint>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"

namespace trireme::ops {

// A window sliding over an image: what convolutions and poolings share.
struct Window {
  std::array<std::int64_t, 2> kernel{1, 1}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  // `padding` is before the image; what is behind it may differ, of a slice of an image.
  std::array<std::int64_t, 2> padding_after{0, 0};

  std::int64_t reach(std::size_t dimension) const { return (kernel[dimension] - 1) * dilation[dimension] + 1; }

  // Positions of the window along dimension 0 (height) or 1 (width) of an image of this extent.
  std::int64_t positions(std::size_t dimension, std::int64_t extent) const {
    const std::int64_t room = extent + padding[dimension] + padding_after[dimension] - reach(dimension);
    return room < 0 ? 0 : room / stride[dimension] + 1;
  }
};

// Two values from an attribute that must hold two, none below `least`.
std::array<std::int64_t, 2> pair_of(const ir::Attributes& attributes, const char* name, std::int64_t least);

// The attribute "padding": [height, width], or [top, left, bottom, right].
void read_padding(Window& window, const ir::Attributes& attributes);

// A convolution of x[n,h,w,c] with weights [k,r,s,c/groups] to y[n,p,q,k].
struct ConvProblem {
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::int64_t k = 0;
  std::int64_t p = 0, q = 0;
  std::int64_t groups = 1;
  Window window;

  Shape x() const { return {n, h, w, c}; }
  Shape y() const { return {n, p, q, k}; }
  Shape weights() const { return {k, window.kernel[0], window.kernel[1], c / groups}; }
};

// From the shapes and attributes of conv2d, conv2d_grad_input and conv2d_grad_weight. Each throws with what was
// expected when they do not fit together.
ConvProblem conv_problem(const TensorType& x, const TensorType& w, const ir::Attributes& attributes);
ConvProblem conv_input_gradient_problem(const TensorType& dy, const TensorType& w, const ir::Attributes& attributes);
ConvProblem conv_weight_gradient_problem(const TensorType& x, const TensorType& dy, const ir::Attributes& attributes);

}  // namespace trireme::ops
