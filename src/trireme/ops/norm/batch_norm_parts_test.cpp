#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

const std::vector<Shape> kShapes = {{3, 1}, {2, 5, 3, 17}, {900, 70}, {9, 1030}};

std::size_t channels_of(const Tensor& x) {
  return std::max(std::size_t{1}, static_cast<std::size_t>(x.type.shape.back()));
}
std::size_t rows_of(const Tensor& x, std::size_t channels) { return x.data.size() / channels; }

double positive(std::size_t, std::size_t i) { return 1.5 + std::sin(1.3 * static_cast<double>(i)); }

TEST(BatchNormParts, Moments) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kShapes) {
      OpCase c;
      c.op = "channel_moments";
      c.inputs = {{dtype, shape}};
      c.reference = [](const std::vector<Tensor>& in) {
        const std::size_t channels = channels_of(in[0]);
        Tensor sum = Tensor::zeros({DType::f32, {in[0].type.shape.back()}});
        Tensor mean = sum;
        Tensor squares = sum;
        for (std::size_t i = 0; i < in[0].data.size(); ++i) sum[i % channels] += in[0][i];
        for (std::size_t k = 0; k < channels; ++k) mean[k] = sum[k] / static_cast<double>(rows_of(in[0], channels));
        for (std::size_t i = 0; i < in[0].data.size(); ++i)
          squares[i % channels] += std::pow(in[0][i] - mean[i % channels], 2);
        return std::vector<Tensor>{sum, mean, squares};
      };
      check_op(c);
    }
}

// What several ranks' rows add up to is what one rank would have found.
TEST(BatchNormParts, SquaresAboutTheMeanOfAll) {
  for (const std::int64_t channels : {1, 7, 130}) {
    OpCase c;
    const TensorType channel{DType::f32, {channels}};
    c.op = "joint_squares";
    c.inputs = {channel, channel, channel};
    c.attributes = {{"rows", std::int64_t{5}}, {"all_rows", std::int64_t{20}}};
    c.reference = [](const std::vector<Tensor>& in) {
      Tensor out = in[0];
      for (std::size_t k = 0; k < out.data.size(); ++k) out[k] = in[2][k] + 5 * std::pow(in[1][k] - in[0][k] / 20, 2);
      return std::vector<Tensor>{out};
    };
    check_op(c);
  }
}

TEST(BatchNormParts, NormalisesByWhatItIsGiven) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kShapes) {
      const TensorType channel{DType::f32, {shape.back()}};
      OpCase c;
      c.op = "batch_norm_given";
      c.inputs = {{dtype, shape}, channel, channel, channel, channel, channel, channel};
      c.attributes = {{"rows", std::int64_t{40}}};
      c.fill = positive;
      c.tolerance = dtype == DType::f32 ? 3e-6 : 1e-2;
      c.reference = [](const std::vector<Tensor>& in) {
        const std::size_t channels = channels_of(in[1]);
        Tensor y = in[0];
        Tensor mean = in[1];
        Tensor rstd = in[1];
        Tensor new_mean = in[1];
        Tensor new_var = in[1];
        for (std::size_t k = 0; k < channels; ++k) {
          mean[k] = in[5][k] / 40;
          rstd[k] = 1 / std::sqrt(in[6][k] / 40 + 1e-5);
          new_mean[k] = 0.9 * in[3][k] + 0.1 * mean[k];
          new_var[k] = 0.9 * in[4][k] + 0.1 * in[6][k] / 39;
        }
        for (std::size_t i = 0; i < y.data.size(); ++i) {
          const std::size_t k = i % channels;
          y[i] = (in[0][i] - mean[k]) * rstd[k] * in[1][k] + in[2][k];
        }
        return std::vector<Tensor>{y, mean, rstd, new_mean, new_var};
      };
      check_op(c);
    }
}

TEST(BatchNormParts, Gradients) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kShapes) {
      const TensorType x{dtype, shape};
      const TensorType channel{DType::f32, {shape.back()}};
      OpCase sums;
      sums.op = "batch_norm_sums";
      sums.inputs = {x, channel, channel, x};
      sums.tolerance = 3e-6;
      sums.reference = [](const std::vector<Tensor>& in) {
        const std::size_t channels = channels_of(in[1]);
        Tensor dweight = Tensor::zeros(in[1].type);
        Tensor dbias = dweight;
        for (std::size_t i = 0; i < in[0].data.size(); ++i) {
          const std::size_t k = i % channels;
          dbias[k] += in[3][i];
          dweight[k] += in[3][i] * (in[0][i] - in[1][k]) * in[2][k];
        }
        return std::vector<Tensor>{dweight, dbias};
      };
      check_op(sums);
      OpCase dx;
      dx.op = "batch_norm_dx";
      dx.inputs = {x, channel, channel, channel, x, channel, channel};
      dx.attributes = {{"rows", std::int64_t{50}}};
      dx.tolerance = dtype == DType::f32 ? 3e-6 : 1e-2;
      dx.reference = [](const std::vector<Tensor>& in) {
        const std::size_t channels = channels_of(in[1]);
        Tensor result = in[0];
        for (std::size_t i = 0; i < in[0].data.size(); ++i) {
          const std::size_t k = i % channels;
          const double normal = (in[0][i] - in[2][k]) * in[3][k];
          result[i] = in[1][k] * in[3][k] * (in[4][i] - (in[6][k] + normal * in[5][k]) / 50);
        }
        return std::vector<Tensor>{result};
      };
      check_op(dx);
    }
}

}  // namespace
}  // namespace trireme::ops
