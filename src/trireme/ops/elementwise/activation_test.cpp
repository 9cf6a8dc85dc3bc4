#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

struct Function {
  const char* op;
  ir::Attributes attributes;
  double (*value)(double);
  double (*derivative)(double);
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
double density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }
double inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double inner_slope(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x); }

const std::vector<Function>& functions() {
  static const std::vector<Function> all = {
      {"relu", {}, [](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }},
      {"gelu", {}, [](double x) { return x * normal(x); }, [](double x) { return normal(x) + x * density(x); }},
      {"gelu",
       {{"tanh", true}},
       [](double x) { return 0.5 * x * (1 + std::tanh(inner(x))); },
       [](double x) {
         const double t = std::tanh(inner(x));
         return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope(x);
       }},
      {"silu",
       {},
       [](double x) { return x * sigmoid(x); },
       [](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }},
  };
  return all;
}

const std::vector<Shape> kShapes = {{}, {1}, {3, 7}, {17}, {3, 5, 67}, {9001}};

double spread(std::size_t input, std::size_t i) {
  return 6 * std::sin(0.37 + 1.7 * static_cast<double>(i) + static_cast<double>(input));
}

double tolerance_of(DType dtype) { return dtype == DType::f32 ? 2e-6 : 1e-2; }

TEST(Activation, Forward) {
  for (const Function& f : functions())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Shape& shape : kShapes) {
        OpCase c;
        c.op = f.op;
        c.inputs = {{dtype, shape}};
        c.attributes = f.attributes;
        c.fill = spread;
        c.tolerance = tolerance_of(dtype);
        c.reference = [&f](const std::vector<Tensor>& in) {
          Tensor y = in[0];
          for (double& v : y.data) v = f.value(v);
          return std::vector<Tensor>{y};
        };
        if (dtype == DType::f32 && shape.elements() < 3000) c.differentiate = {0};
        check_op(c);
      }
}

TEST(Activation, Gradient) {
  for (const Function& f : functions())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Shape& shape : kShapes) {
        OpCase c;
        c.op = std::string(f.op) + "_grad";
        c.inputs = {{dtype, shape}, {dtype, shape}};
        c.attributes = f.attributes;
        c.fill = spread;
        c.tolerance = tolerance_of(dtype);
        c.reference = [&f](const std::vector<Tensor>& in) {
          Tensor dx = in[0];
          for (std::size_t i = 0; i < dx.data.size(); ++i) dx[i] = in[1][i] * f.derivative(in[0][i]);
          return std::vector<Tensor>{dx};
        };
        check_op(c);
      }
}

TEST(Swiglu, ForwardAndGradient) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes) {
      const TensorType type = {dtype, shape};
      OpCase c;
      c.op = "swiglu";
      c.inputs = {type, type};
      c.fill = spread;
      c.tolerance = tolerance_of(dtype);
      c.reference = [](const std::vector<Tensor>& in) {
        Tensor y = in[0];
        for (std::size_t i = 0; i < y.data.size(); ++i) y[i] = in[0][i] * sigmoid(in[0][i]) * in[1][i];
        return std::vector<Tensor>{y};
      };
      if (dtype == DType::f32 && shape.elements() < 3000) c.differentiate = {0, 1};
      check_op(c);

      OpCase g;
      g.op = "swiglu_grad";
      g.inputs = {type, type, type};
      g.fill = spread;
      g.tolerance = tolerance_of(dtype);
      g.reference = [](const std::vector<Tensor>& in) {
        Tensor dgate = in[0];
        Tensor dup = in[0];
        for (std::size_t i = 0; i < dup.data.size(); ++i) {
          const double s = sigmoid(in[0][i]);
          dgate[i] = in[2][i] * in[1][i] * s * (1 + in[0][i] * (1 - s));
          dup[i] = in[2][i] * in[0][i] * s;
        }
        return std::vector<Tensor>{dgate, dup};
      };
      check_op(g);
    }
}

}  // namespace
}  // namespace trireme::ops
