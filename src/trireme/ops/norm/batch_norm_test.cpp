#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

constexpr double kEps = 1e-5;
constexpr double kMomentum = 0.1;

std::vector<Tensor> forward(const std::vector<Tensor>& in, bool training) {
  const Tensor& x = in[0];
  const std::size_t channels = in[1].data.size();
  const std::size_t count = x.data.size() / channels;
  const auto rows = static_cast<double>(count);
  Tensor y = x;
  Tensor mean = Tensor::zeros(in[1].type);
  Tensor variance = mean;
  Tensor rstd = mean;
  Tensor new_mean = in[3];
  Tensor new_var = in[4];
  if (training) {
    for (std::size_t i = 0; i < x.data.size(); ++i) mean[i % channels] += x[i] / rows;
    for (std::size_t i = 0; i < x.data.size(); ++i)
      variance[i % channels] += std::pow(x[i] - mean[i % channels], 2) / rows;
    for (std::size_t c = 0; c < channels; ++c) {
      new_mean[c] = (1 - kMomentum) * in[3][c] + kMomentum * mean[c];
      new_var[c] = (1 - kMomentum) * in[4][c] + kMomentum * variance[c] * rows / std::max(1.0, rows - 1);
    }
  } else {
    mean.data = in[3].data;
    variance.data = in[4].data;
  }
  for (std::size_t c = 0; c < channels; ++c) rstd[c] = 1 / std::sqrt(variance[c] + kEps);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::size_t c = i % channels;
    y[i] = (x[i] - mean[c]) * rstd[c] * in[1][c] + in[2][c];
  }
  return {y, mean, rstd, new_mean, new_var};
}

double value(std::size_t input, std::size_t i) {
  const double wave = std::sin(1.3 * static_cast<double>(i) + static_cast<double>(input));
  return (input == 4 ? 1.5 : 0.3) + wave;
}

OpCase forward_case(DType dtype, const Shape& shape, bool training) {
  const TensorType channel = {DType::f32, {shape.back()}};
  OpCase c;
  c.op = "batch_norm";
  c.inputs = {{dtype, shape}, channel, channel, channel, channel};
  c.attributes = {{"training", training}};
  c.fill = value;
  c.saved_outputs = {2};  // one over the deviation
  c.tolerance = dtype == DType::f32 ? 3e-6 : 1e-2;
  c.reference = [training](const std::vector<Tensor>& in) { return forward(in, training); };
  return c;
}

TEST(BatchNorm, Forward) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape :
         {Shape{3, 1}, Shape{7, 3}, Shape{2, 5, 3, 17}, Shape{33, 65}, Shape{900, 70}, Shape{9, 1030}})
      for (const bool training : {true, false}) {
        OpCase c = forward_case(dtype, shape, training);
        if (dtype == DType::f32 && shape.elements() < 3000) c.differentiate = {0, 1, 2};
        check_op(c);
      }
}

TEST(BatchNorm, LargeMeanKeepsItsDigits) {
  OpCase c = forward_case(DType::f32, {5000, 7}, true);
  c.fill = [](std::size_t input, std::size_t i) { return input == 0 ? 20000 + value(0, i) : value(input, i); };
  check_op(c);
}

// Mostly zero with rare spikes, as after a relu.
TEST(BatchNorm, SparseChannels) {
  OpCase c = forward_case(DType::f32, {4096, 5}, true);
  c.fill = [](std::size_t input, std::size_t i) {
    return input == 0 ? (i % 1280 < 5 ? 1000.0 : 0.0) : value(input, i);
  };
  check_op(c);
}

TEST(BatchNorm, Gradient) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{3, 1}, Shape{2, 5, 3, 17}, Shape{900, 70}, Shape{9, 1030}})
      for (const bool training : {true, false}) {
        const TensorType x = {dtype, shape};
        const TensorType channel = {DType::f32, {shape.back()}};
        OpCase c;
        c.op = "batch_norm_grad";
        c.inputs = {x, channel, channel, channel, x};
        c.attributes = {{"training", training}};
        c.tolerance = dtype == DType::f32 ? 3e-6 : 1e-2;
        c.reference = [training](const std::vector<Tensor>& in) {
          const std::size_t channels = in[1].data.size();
          const std::size_t count = in[0].data.size() / channels;
          const auto rows = static_cast<double>(count);
          Tensor dx = in[0];
          Tensor dweight = Tensor::zeros(in[1].type);
          Tensor dbias = dweight;
          for (std::size_t i = 0; i < dx.data.size(); ++i) {
            const std::size_t k = i % channels;
            dbias[k] += in[4][i];
            dweight[k] += in[4][i] * (in[0][i] - in[2][k]) * in[3][k];
          }
          for (std::size_t i = 0; i < dx.data.size(); ++i) {
            const std::size_t k = i % channels;
            const double normal = (in[0][i] - in[2][k]) * in[3][k];
            const double common = training ? (dbias[k] + normal * dweight[k]) / rows : 0;
            dx[i] = in[1][k] * in[3][k] * (in[4][i] - common);
          }
          return std::vector<Tensor>{dx, dweight, dbias};
        };
        check_op(c);
      }
}

// The residual and the activation behind the norm: as if they were ops of their own.
TEST(BatchNorm, WithResidualAndActivation) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{3, 1}, Shape{2, 5, 3, 17}, Shape{900, 64}, Shape{9, 1032}})
      for (const bool residual : {true, false})
        for (const bool relu : {true, false}) {
          OpCase c = forward_case(dtype, shape, true);
          c.inputs.push_back(residual ? TensorType{dtype, shape} : TensorType::none());
          c.attributes.set("activation", relu ? "relu" : "none");
          c.reference = [=](const std::vector<Tensor>& in) {
            std::vector<Tensor> out = forward(in, true);
            for (std::size_t i = 0; i < out[0].data.size(); ++i) {
              if (residual) out[0][i] += in[5][i];
              if (relu) out[0][i] = std::max(0.0, out[0][i]);
            }
            return out;
          };
          if (dtype == DType::f32 && shape.elements() < 3000 && !relu) c.differentiate = {0, 1, 2};
          if (!c.differentiate.empty() && residual) c.differentiate.push_back(5);
          check_op(c);
        }
}

// With the gate given by y or following from x, a second gradient, and what passed as an output.
TEST(BatchNorm, GradientThroughTheActivation) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{3, 1}, Shape{2, 5, 3, 17}, Shape{900, 64}, Shape{9, 1032}})
      for (const bool saved : {true, false})
        for (const bool total : {true, false})
          for (const bool more : {true, false}) {
            if (more && !total) continue;
            const TensorType x = {dtype, shape};
            const TensorType channel = {DType::f32, {shape.back()}};
            OpCase c;
            c.op = "batch_norm_grad";
            c.inputs = {x,
                        channel,
                        channel,
                        channel,
                        x,
                        saved ? TensorType::none() : channel,
                        saved ? x : TensorType::none(),
                        more ? x : TensorType::none()};
            c.attributes = {{"activation", "relu"}, {"total", total}};
            c.tolerance = dtype == DType::f32 ? 3e-6 : 1e-2;
            c.reference = [=](const std::vector<Tensor>& in) {
              const std::size_t channels = in[1].data.size();
              const std::size_t count = in[0].data.size() / channels;
              const auto rows = static_cast<double>(count);
              Tensor passed = in[4];
              Tensor dx = in[0];
              Tensor dweight = Tensor::zeros(in[1].type);
              Tensor dbias = dweight;
              for (std::size_t i = 0; i < dx.data.size(); ++i) {
                const std::size_t k = i % channels;
                const double normal = (in[0][i] - in[2][k]) * in[3][k];
                const bool open = saved ? in[6][i] > 0 : normal * in[1][k] + in[5][k] > 0;
                passed[i] = open ? in[4][i] + (more ? in[7][i] : 0) : 0;
                dbias[k] += passed[i];
                dweight[k] += passed[i] * normal;
              }
              for (std::size_t i = 0; i < dx.data.size(); ++i) {
                const std::size_t k = i % channels;
                const double normal = (in[0][i] - in[2][k]) * in[3][k];
                dx[i] = in[1][k] * in[3][k] * (passed[i] - (dbias[k] + normal * dweight[k]) / rows);
              }
              std::vector<Tensor> out = {dx, dweight, dbias};
              if (total) out.push_back(passed);
              return out;
            };
            check_op(c);
          }
}

}  // namespace
}  // namespace trireme::ops
