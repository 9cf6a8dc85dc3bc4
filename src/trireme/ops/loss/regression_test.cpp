#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

double absolute(double e) { return std::abs(e); }
double square(double e) { return e * e; }

OpCase regression_case(const char* op, const Shape& shape, DType dtype, double (*error)(double)) {
  OpCase c;
  c.op = op;
  c.inputs = {{dtype, shape}, {dtype, shape}};
  c.attributes = {{"scale", 0.25}};
  // Predictions and targets are apart by more than the step of the finite differences.
  c.fill = [](std::size_t input, std::size_t element) {
    const double x = std::sin(0.3 + 2.7 * static_cast<double>(element));
    return input == 0 ? x : x + (element % 3 == 0 ? 0.5 : -0.25);
  };
  c.reference = [error](const std::vector<Tensor>& in) {
    Tensor loss = Tensor::zeros({DType::f32, {}});
    for (std::size_t i = 0; i < in[0].data.size(); ++i) loss[0] += 0.25 * error(in[0][i] - in[1][i]);
    return std::vector<Tensor>{loss};
  };
  c.differentiate = {0, 1};
  if (dtype != DType::f32) c.gradient_tolerance = 1e-2;
  return c;
}

TEST(Regression, OddSizes) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{17, 33}, Shape{3, 65, 101}}) {
    check_op(regression_case("mean_absolute_error", shape, DType::f32, absolute));
    check_op(regression_case("squared_error", shape, DType::f32, square));
  }
}

TEST(Regression, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    check_op(regression_case("mean_absolute_error", {5, 33}, dtype, absolute));
    check_op(regression_case("squared_error", {5, 33}, dtype, square));
  }
}

TEST(Regression, GradientsInPlace) {
  for (const char* op : {"mean_absolute_error_grad", "squared_error_grad"}) {
    OpCase c = regression_case(op, {7, 33}, DType::f32, nullptr);
    c.inputs.push_back({DType::f32, {}});
    const bool squared = c.op == "squared_error_grad";
    c.fill = [](std::size_t input, std::size_t element) {
      return input == 2 ? 1.5 : std::sin(static_cast<double>(element % 5 == 0 ? element : element + input));
    };
    c.reference = [squared](const std::vector<Tensor>& in) {
      Tensor d = in[0];
      for (std::size_t i = 0; i < d.data.size(); ++i) {
        const double e = in[0][i] - in[1][i];
        d[i] = 0.25 * in[2][0] * (squared ? 2 * e : static_cast<double>((e > 0) - (e < 0)));
      }
      return std::vector<Tensor>{d};
    };
    c.differentiate = {};
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme
