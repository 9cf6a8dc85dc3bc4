#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::round_to;
using testing::Tensor;

constexpr double kEps = 1e-5;

// layer_norm (centered) and rms_norm, in double precision.
struct Reference {
  bool centered = true;

  std::size_t width(const Tensor& x) const { return static_cast<std::size_t>(x.type.shape.back()); }

  std::vector<Tensor> forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) const {
    const std::size_t d = width(x);
    const std::size_t rows = x.data.size() / d;
    Tensor y = x;
    Tensor sum = x;
    Tensor mean = Tensor::zeros({DType::f32, x.type.shape.slice(0, x.type.shape.rank() - 1)});
    Tensor rstd = mean;
    for (std::size_t i = 0; i < x.data.size(); ++i)
      if (residual.type.present) {
        sum[i] = x[i] + residual[i];
        // The kernel's rounding matters for the narrow types only, and would spoil finite differences in f32.
        if (x.type.dtype != DType::f32) sum[i] = round_to(sum[i], x.type.dtype);
      }
    for (std::size_t r = 0; r < rows; ++r) {
      double variance = 0;
      if (centered)
        for (std::size_t i = 0; i < d; ++i) mean[r] += sum[r * d + i] / static_cast<double>(d);
      for (std::size_t i = 0; i < d; ++i) variance += std::pow(sum[r * d + i] - mean[r], 2) / static_cast<double>(d);
      rstd[r] = 1 / std::sqrt(variance + kEps);
      for (std::size_t i = 0; i < d; ++i)
        y[r * d + i] = (sum[r * d + i] - mean[r]) * rstd[r] * weight[i] + (bias.type.present ? bias[i] : 0.0);
    }
    std::vector<Tensor> outputs = {y};
    if (centered) outputs.push_back(mean);
    outputs.push_back(rstd);
    if (residual.type.present) outputs.push_back(sum);
    return outputs;
  }

  // Gradients of s, weight and bias.
  std::vector<Tensor> backward(const Tensor& s, const Tensor& weight, const std::vector<double>& mean,
                               const Tensor& rstd, const Tensor& dy, const Tensor& dsum) const {
    const std::size_t d = width(s);
    Tensor dx = s;
    Tensor dweight = Tensor::zeros(weight.type);
    Tensor dbias = dweight;
    for (std::size_t r = 0; r < s.data.size() / d; ++r) {
      double g = 0;
      double gx = 0;
      for (std::size_t i = r * d; i < r * d + d; ++i) {
        const double normal = (s[i] - mean[r]) * rstd[r];
        g += dy[i] * weight[i % d] / static_cast<double>(d);
        gx += dy[i] * weight[i % d] * normal / static_cast<double>(d);
        dweight[i % d] += dy[i] * normal;
        dbias[i % d] += dy[i];
      }
      for (std::size_t i = r * d; i < r * d + d; ++i) {
        const double normal = (s[i] - mean[r]) * rstd[r];
        dx[i] =
            (dy[i] * weight[i % d] - (centered ? g : 0) - normal * gx) * rstd[r] + (dsum.type.present ? dsum[i] : 0.0);
      }
    }
    return {dx, dweight, dbias};
  }
};

double tolerance_of(DType dtype) { return dtype == DType::f32 ? 2e-6 : 1e-2; }

const std::vector<Shape> kShapes = {{1, 1}, {3, 7}, {2, 3, 17}, {33, 65}, {5, 129}, {70, 1000}};

TEST(LayerNorm, Forward) {
  const Reference reference;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes)
      for (const bool bias : {false, true})
        for (const bool residual : {false, true}) {
          const TensorType x = {dtype, shape};
          const TensorType w = {DType::f32, {shape.back()}};
          OpCase c;
          c.op = "layer_norm";
          c.inputs = {x, w, bias ? w : TensorType::none(), residual ? x : TensorType::none()};
          c.tolerance = tolerance_of(dtype);
          c.reference = [&](const std::vector<Tensor>& in) { return reference.forward(in[0], in[1], in[2], in[3]); };
          if (dtype == DType::f32 && shape.elements() < 3000 && shape.back() > 1) {
            c.differentiate = {0, 1};
            if (bias) c.differentiate.push_back(2);
            if (residual) {
              c.differentiate.push_back(3);
              c.differentiate_outputs = {0, 3};
            }
          }
          check_op(c);
        }
}

TEST(LayerNorm, LargeMeanKeepsItsDigits) {
  const Reference reference;
  OpCase c;
  c.op = "layer_norm";
  c.inputs = {{DType::f32, {9, 777}}, {DType::f32, {777}}, {DType::f32, {777}}, TensorType::none()};
  c.fill = [](std::size_t input, std::size_t i) {
    const double wave = std::sin(0.7 * static_cast<double>(i));
    return input == 0 ? 100 + wave : wave;
  };
  c.tolerance = 1e-5;  // a mean of 100 in f32 is good to 4e-6; taking the variance in one pass would cost 1e-3
  c.reference = [&](const std::vector<Tensor>& in) { return reference.forward(in[0], in[1], in[2], in[3]); };
  check_op(c);
}

TEST(LayerNorm, Gradient) {
  const Reference reference;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes)
      for (const bool dsum : {false, true})
        for (const bool bias : {false, true}) {
          if (shape.back() == 1) continue;  // the gradient is what is left of two equal terms
          const TensorType x = {dtype, shape};
          const TensorType w = {DType::f32, {shape.back()}};
          const TensorType row = {DType::f32, shape.slice(0, shape.rank() - 1)};
          OpCase c;
          c.op = "layer_norm_grad";
          c.inputs = {x, w, row, row, x, dsum ? x : TensorType::none()};
          c.attributes = {{"has_bias", bias}};
          c.tolerance = tolerance_of(dtype);
          c.reference = [&](const std::vector<Tensor>& in) {
            auto grads = reference.backward(in[0], in[1], in[2].data, in[3], in[4], in[5]);
            if (!bias) grads.pop_back();
            return grads;
          };
          check_op(c);
        }
}

// Rows of any width, and more of them than are in flight at once.
TEST(LayerNorm, WideRowsAndManyRows) {
  const Reference reference;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{2, 1280},
                               {450, 1600},
                               {3, 5120},
                               {2, 12288},
                               {2, 16384},
                               {2, 6001},
                               {2, 16385},
                               {1700, 16},
                               {800, 520}}) {
      const TensorType x = {dtype, shape};
      const TensorType w = {DType::f32, {shape.back()}};
      const TensorType row = {DType::f32, {shape[0]}};
      OpCase c;
      c.op = "layer_norm";
      c.inputs = {x, w, w, x};
      c.tolerance = dtype == DType::f32 ? 4e-6 : 1e-2;
      c.reference = [&](const std::vector<Tensor>& in) { return reference.forward(in[0], in[1], in[2], in[3]); };
      check_op(c);
      OpCase g;
      g.op = "layer_norm_grad";
      g.inputs = {x, w, row, row, x, x};
      g.tolerance = c.tolerance;
      g.reference = [&](const std::vector<Tensor>& in) {
        return reference.backward(in[0], in[1], in[2].data, in[3], in[4], in[5]);
      };
      check_op(g);
    }
}

TEST(RmsNorm, Forward) {
  const Reference reference{.centered = false};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes)
      for (const bool residual : {false, true}) {
        const TensorType x = {dtype, shape};
        OpCase c;
        c.op = "rms_norm";
        c.inputs = {x, {DType::f32, {shape.back()}}, residual ? x : TensorType::none()};
        c.tolerance = tolerance_of(dtype);
        c.reference = [&](const std::vector<Tensor>& in) {
          Tensor none;
          none.type = TensorType::none();
          return reference.forward(in[0], in[1], none, in[2]);
        };
        if (dtype == DType::f32 && shape.elements() < 3000 && shape.back() > 1) {
          c.differentiate = {0, 1};
          if (residual) {
            c.differentiate.push_back(2);
            c.differentiate_outputs = {0, 2};
          }
        }
        check_op(c);
      }
}

TEST(RmsNorm, Gradient) {
  const Reference reference{.centered = false};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : kShapes)
      for (const bool dsum : {false, true}) {
        const TensorType x = {dtype, shape};
        OpCase c;
        c.op = "rms_norm_grad";
        c.inputs = {x,
                    {DType::f32, {shape.back()}},
                    {DType::f32, shape.slice(0, shape.rank() - 1)},
                    x,
                    dsum ? x : TensorType::none()};
        c.tolerance = tolerance_of(dtype);
        c.reference = [&](const std::vector<Tensor>& in) {
          const std::vector<double> mean(in[2].data.size(), 0.0);
          auto grads = reference.backward(in[0], in[1], mean, in[2], in[3], in[4]);
          grads.pop_back();
          return grads;
        };
        check_op(c);
      }
}

// The sum of dx over the rows, by every kind of kernel.
TEST(LayerNorm, GradientWithItsTotal) {
  const Reference reference;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool has_bias : {true, false})
      for (const Shape& shape : {Shape{3, 7},
                                 {2, 3, 17},
                                 {33, 64},
                                 {2, 1201, 768},
                                 {5, 1304},
                                 {901, 1600},
                                 {9, 1792},
                                 {7, 2048},
                                 {3, 20001}}) {
        const TensorType x = {dtype, shape};
        const TensorType w = {DType::f32, {shape.back()}};
        const TensorType row = {DType::f32, shape.slice(0, shape.rank() - 1)};
        const char* const out = has_bias == (shape[0] % 2 == 0) ? "f32" : "same";
        OpCase c;
        c.op = "layer_norm_grad";
        c.inputs = {x, w, row, row, x, x};
        c.attributes = {{"has_bias", has_bias}, {"total", std::string(out)}};
        c.tolerance = tolerance_of(dtype);
        c.reference = [&](const std::vector<Tensor>& in) {
          auto grads = reference.backward(in[0], in[1], in[2].data, in[3], in[4], in[5]);
          if (!has_bias) grads.pop_back();
          Tensor total = Tensor::zeros({c.attributes.text("total") == "f32" ? DType::f32 : dtype, w.shape});
          for (std::size_t i = 0; i < grads[0].data.size(); ++i)
            total[i % total.data.size()] += round_to(grads[0][i], dtype);
          grads.push_back(total);
          return grads;
        };
        check_op(c);
      }
}

// Rows that a GPU takes two at a time, an odd number of them, by blocks of every size: all columns taken, and some
// threads idle.
TEST(RowNorm, GradientsOfPairsOfRows) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const bool centered : {true, false})
      for (const Shape& shape : {Shape{2501, 768},
                                 {3, 768},
                                 {1, 1024},
                                 {1701, 1280},
                                 {5, 1304},
                                 {7, 1536},
                                 {901, 1600},
                                 {9, 1792},
                                 {5, 1800},
                                 {803, 2048},
                                 {3, 4096},
                                 {5, 3080}}) {
        const Reference reference{.centered = centered};
        const TensorType x = {dtype, shape};
        const TensorType w = {DType::f32, {shape.back()}};
        const TensorType row = {DType::f32, {shape[0]}};
        OpCase c;
        c.op = centered ? "layer_norm_grad" : "rms_norm_grad";
        c.inputs = centered ? std::vector<TensorType>{x, w, row, row, x, x} : std::vector<TensorType>{x, w, row, x, x};
        c.tolerance = tolerance_of(dtype);
        c.reference = [&](const std::vector<Tensor>& in) {
          if (centered) return reference.backward(in[0], in[1], in[2].data, in[3], in[4], in[5]);
          auto grads =
              reference.backward(in[0], in[1], std::vector<double>(in[2].data.size(), 0.0), in[2], in[3], in[4]);
          grads.pop_back();
          return grads;
        };
        check_op(c);
      }
}

}  // namespace
}  // namespace trireme::ops
