#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

OpCase softmax_case(const Shape& shape, DType dtype, double spread) {
  OpCase c;
  c.op = "softmax";
  c.inputs = {{dtype, shape}};
  c.fill = [spread](std::size_t, std::size_t element) {
    return spread * std::sin(0.3 + 2.7 * static_cast<double>(element));
  };
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    const auto width = static_cast<std::size_t>(y.type.shape.back());
    for (std::size_t row = 0; row < y.data.size(); row += width) {
      double sum = 0;
      for (std::size_t i = row; i < row + width; ++i) sum += std::exp(in[0][i]);
      for (std::size_t i = row; i < row + width; ++i) y[i] = std::exp(in[0][i]) / sum;
    }
    return std::vector<Tensor>{y};
  };
  c.differentiate = {0};
  if (dtype != DType::f32) c.tolerance = c.gradient_tolerance = 1e-2;
  return c;
}

TEST(Softmax, OddSizes) {
  for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{65, 17}, Shape{3, 1000}})
    check_op(softmax_case(shape, DType::f32, 2));
}

TEST(Softmax, LargeValues) {
  OpCase c = softmax_case({3, 65}, DType::f32, 60);
  c.tolerance = 1e-5;  // a difference of 60 is itself known to 4e-6
  c.differentiate = {};
  check_op(c);
}

TEST(Softmax, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) check_op(softmax_case({7, 33}, dtype, 2));
}

TEST(SoftmaxGrad, InPlace) {
  OpCase c;
  c.op = "softmax_grad";
  c.inputs = {{DType::f32, {7, 33}}, {DType::f32, {7, 33}}};
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor dx = in[0];
    for (std::size_t row = 0; row < dx.data.size(); row += 33) {
      double sum = 0;
      for (std::size_t i = row; i < row + 33; ++i) sum += in[0][i] * in[1][i];
      for (std::size_t i = row; i < row + 33; ++i) dx[i] = in[0][i] * (in[1][i] - sum);
    }
    return std::vector<Tensor>{dx};
  };
  check_op(c);
}

}  // namespace
}  // namespace trireme
