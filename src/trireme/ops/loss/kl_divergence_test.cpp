#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

std::vector<double> softmax(const Tensor& x, std::size_t row, std::size_t width, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (std::size_t i = 0; i < width; ++i) {
    p.push_back(std::exp(x[row * width + i] / temperature));
    sum += p.back();
  }
  for (double& v : p) v /= sum;
  return p;
}

OpCase kl_case(const Shape& shape, DType dtype, double temperature) {
  OpCase c;
  c.op = "kl_divergence";
  c.inputs = {{dtype, shape}, {dtype, shape}};
  c.attributes = {{"scale", 0.25}, {"temperature", temperature}};
  c.fill = [](std::size_t input, std::size_t element) {
    return 3 * std::sin(0.3 + static_cast<double>(input) + 2.7 * static_cast<double>(element));
  };
  c.reference = [temperature](const std::vector<Tensor>& in) {
    Tensor loss = Tensor::zeros({DType::f32, {}});
    const auto width = static_cast<std::size_t>(in[0].type.shape.back());
    for (std::size_t row = 0; row < in[0].data.size() / width; ++row) {
      const auto q = softmax(in[0], row, width, temperature), p = softmax(in[1], row, width, temperature);
      for (std::size_t i = 0; i < width; ++i) loss[0] += 0.25 * p[i] * std::log(p[i] / q[i]);
    }
    return std::vector<Tensor>{loss};
  };
  c.differentiate = {0};
  if (dtype != DType::f32) c.gradient_tolerance = 1e-2;
  return c;
}

TEST(KlDivergence, OddSizes) {
  for (const Shape& shape : {Shape{3}, Shape{3, 7}, Shape{2, 5, 33}, Shape{7, 1003}})
    check_op(kl_case(shape, DType::f32, 1));
}

TEST(KlDivergence, Temperature) { check_op(kl_case({5, 65}, DType::f32, 2.5)); }

TEST(KlDivergence, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) check_op(kl_case({5, 33}, dtype, 2));
}

TEST(KlDivergenceGrad, InPlace) {
  OpCase c = kl_case({5, 33}, DType::f32, 2);
  c.op = "kl_divergence_grad";
  c.inputs.push_back({DType::f32, {}});
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor d = in[0];
    for (std::size_t row = 0; row < 5; ++row) {
      const auto q = softmax(in[0], row, 33, 2), p = softmax(in[1], row, 33, 2);
      for (std::size_t i = 0; i < 33; ++i) d[row * 33 + i] = in[2][0] * 0.25 / 2 * (q[i] - p[i]);
    }
    return std::vector<Tensor>{d};
  };
  c.differentiate = {};
  check_op(c);
}

}  // namespace
}  // namespace trireme
