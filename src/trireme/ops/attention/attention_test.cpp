#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

struct Sizes {
  std::int64_t batch, queries, keys, heads, key_heads, dim;
};

// Plain attention over [b,s,h,d], [b,t,g,d], [b,t,g,d]; a packed q is split first.
std::vector<Tensor> reference(const std::vector<Tensor>& in, const Sizes& z, bool causal, double scale) {
  const auto at = [&](std::size_t part, std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t c) {
    const bool packed = !in[1].type.present;
    const std::int64_t rows = part == 0 ? z.queries : z.keys, heads = part == 0 ? z.heads : z.key_heads;
    const std::int64_t index =
        packed ? (((b * rows + row) * 3 + static_cast<std::int64_t>(part)) * heads + head) * z.dim + c
               : ((b * rows + row) * heads + head) * z.dim + c;
    return in[packed ? 0 : part][static_cast<std::size_t>(index)];
  };
  Tensor out = Tensor::zeros({in[0].type.dtype, {z.batch, z.queries, z.heads, z.dim}});
  Tensor lse = Tensor::zeros({DType::f32, {z.batch, z.heads, z.queries}});
  for (std::int64_t b = 0; b < z.batch; ++b)
    for (std::int64_t h = 0; h < z.heads; ++h)
      for (std::int64_t i = 0; i < z.queries; ++i) {
        const std::int64_t g = h / (z.heads / z.key_heads);
        const std::int64_t seen = causal ? i + z.keys - z.queries + 1 : z.keys;
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (std::int64_t c = 0; c < z.dim; ++c) score += at(0, b, i, h, c) * at(1, b, j, g, c);
          weights.push_back(std::exp(scale * score));
          sum += weights.back();
        }
        lse[static_cast<std::size_t>((b * z.heads + h) * z.queries + i)] = std::log(sum);
        for (std::int64_t j = 0; j < seen; ++j)
          for (std::int64_t c = 0; c < z.dim; ++c)
            out[static_cast<std::size_t>(((b * z.queries + i) * z.heads + h) * z.dim + c)] +=
                weights[static_cast<std::size_t>(j)] / sum * at(2, b, j, g, c);
      }
  return {out, lse};
}

OpCase attention_case(const Sizes& z, DType dtype, bool packed, bool causal, double scale = 0) {
  OpCase c;
  c.op = "attention";
  if (packed)
    c.inputs = {{dtype, {z.batch, z.queries, 3, z.heads, z.dim}}, TensorType::none(), TensorType::none()};
  else
    c.inputs = {{dtype, {z.batch, z.queries, z.heads, z.dim}},
                {dtype, {z.batch, z.keys, z.key_heads, z.dim}},
                {dtype, {z.batch, z.keys, z.key_heads, z.dim}}};
  c.attributes = {{"causal", causal}, {"scale", scale}};
  const double factor = scale == 0 ? 1 / std::sqrt(static_cast<double>(z.dim)) : scale;
  c.reference = [=](const std::vector<Tensor>& in) { return reference(in, z, causal, factor); };
  c.differentiate = packed ? std::vector<std::size_t>{0} : std::vector<std::size_t>{0, 1, 2};
  if (dtype != DType::f32) {
    c.tolerance = 1e-2;
    c.gradient_tolerance = 2e-2;
  }
  return c;
}

TEST(Attention, OddSizes) {
  for (const bool causal : {true, false})
    for (const Sizes& z :
         {Sizes{1, 1, 1, 1, 1, 1}, Sizes{2, 3, 3, 2, 2, 7}, Sizes{1, 17, 17, 2, 2, 33}, Sizes{1, 7, 7, 3, 3, 17}})
      check_op(attention_case(z, DType::f32, false, causal));
}

TEST(Attention, SeveralBlocksOfQueriesAndKeys) {
  for (const bool causal : {true, false}) check_op(attention_case({1, 65, 65, 2, 2, 4}, DType::f32, true, causal));
  OpCase wide = attention_case({1, 131, 131, 2, 2, 80}, DType::f32, true, true);
  wide.differentiate = {};
  check_op(wide);
}

TEST(Attention, GroupedHeads) {
  check_op(attention_case({2, 9, 9, 4, 2, 8}, DType::f32, false, true));
  check_op(attention_case({1, 5, 5, 6, 1, 16}, DType::f32, false, false));
}

TEST(Attention, MoreKeysThanQueries) { check_op(attention_case({1, 5, 70, 2, 2, 6}, DType::f32, false, true)); }

TEST(Attention, Packed) {
  check_op(attention_case({2, 33, 33, 3, 3, 5}, DType::f32, true, true));
  check_op(attention_case({1, 7, 7, 2, 2, 16}, DType::f32, true, false, 0.3));
}

TEST(Attention, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    check_op(attention_case({1, 17, 17, 2, 2, 16}, dtype, true, true));
    check_op(attention_case({2, 7, 7, 4, 2, 33}, dtype, false, true));
  }
}

}  // namespace
}  // namespace trireme
