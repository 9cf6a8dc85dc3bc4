#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

struct Sizes {
  std::int64_t batch, rows, heads, key_heads, dim, room, position;
};

// Queries, keys and values of the new rows, however they come.
double new_row(const std::vector<Tensor>& in, const Sizes& s, std::int64_t part, std::int64_t b, std::int64_t row,
               std::int64_t head, std::int64_t d) {
  if (!in[1].type.present)
    return in[0][static_cast<std::size_t>((((b * s.rows + row) * 3 + part) * s.heads + head) * s.dim + d)];
  const std::int64_t heads = part == 0 ? s.heads : s.key_heads;
  return in[static_cast<std::size_t>(part)][static_cast<std::size_t>(((b * s.rows + row) * heads + head) * s.dim + d)];
}

std::vector<Tensor> reference(const std::vector<Tensor>& in, const Sizes& s) {
  std::vector<Tensor> out = {Tensor::zeros({in[0].type.dtype, {s.batch, s.rows, s.heads, s.dim}}), in[3], in[4]};
  const auto at = [&](std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t d) {
    return static_cast<std::size_t>(((b * s.key_heads + head) * s.room + row) * s.dim + d);
  };
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t head = 0; head < s.key_heads; ++head)
      for (std::int64_t row = 0; row < s.rows; ++row)
        for (std::int64_t d = 0; d < s.dim; ++d)
          for (const std::int64_t part : {1, 2})
            out[static_cast<std::size_t>(part)][at(b, head, s.position + row, d)] =
                new_row(in, s, part, b, row, head, d);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t head = 0; head < s.heads; ++head)
      for (std::int64_t row = 0; row < s.rows; ++row) {
        const std::int64_t group = head / (s.heads / s.key_heads);
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t key = 0; key <= s.position + row; ++key) {
          double score = 0;
          for (std::int64_t d = 0; d < s.dim; ++d)
            score += new_row(in, s, 0, b, row, head, d) * out[1][at(b, group, key, d)];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.dim))));
          sum += weights.back();
        }
        for (std::int64_t d = 0; d < s.dim; ++d)
          for (std::size_t key = 0; key < weights.size(); ++key)
            out[0][static_cast<std::size_t>(((b * s.rows + row) * s.heads + head) * s.dim + d)] +=
                weights[key] / sum * out[2][at(b, group, static_cast<std::int64_t>(key), d)];
      }
  return out;
}

OpCase attention_case(const Sizes& s, bool packed, DType dtype) {
  OpCase c;
  c.op = "cached_attention";
  const TensorType cache{dtype, {s.batch, s.key_heads, s.room, s.dim}};
  const TensorType rows{dtype, {s.batch, s.rows, s.key_heads, s.dim}};
  if (packed)
    c.inputs = {{dtype, {s.batch, s.rows, 3, s.heads, s.dim}}, TensorType::none(), TensorType::none()};
  else
    c.inputs = {{dtype, {s.batch, s.rows, s.heads, s.dim}}, rows, rows};
  c.inputs.insert(c.inputs.end(), {cache, cache, {DType::i32, {}}});
  c.fill = [position = s.position](std::size_t input, std::size_t element) {
    return input == 5 ? static_cast<double>(position)
                      : 1.5 * std::sin(static_cast<double>(input) + 1.7 * static_cast<double>(element));
  };
  c.reference = [s](const std::vector<Tensor>& in) { return reference(in, s); };
  if (dtype != DType::f32) c.tolerance = 1e-2;
  return c;
}

TEST(CachedAttention, OneNewRow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_op(attention_case({1, 1, 1, 1, 4, 1, 0}, false, dtype));
    check_op(attention_case({2, 1, 6, 2, 17, 33, 32}, false, dtype));
    check_op(attention_case({1, 1, 3, 3, 64, 131, 70}, true, dtype));
    check_op(attention_case({1, 1, 4, 1, 129, 65, 7}, false, dtype));
  }
}

TEST(CachedAttention, SeveralNewRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_op(attention_case({2, 7, 4, 2, 8, 20, 11}, false, dtype));
    check_op(attention_case({1, 8, 3, 3, 33, 8, 0}, true, dtype));
    check_op(attention_case({1, 65, 4, 2, 16, 200, 100}, false, dtype));
    check_op(attention_case({2, 70, 3, 3, 64, 70, 0}, true, dtype));
  }
}

}  // namespace
}  // namespace trireme
