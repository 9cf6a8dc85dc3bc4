#include "trireme/ops/attention/cached_attention_int8.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

struct Extents {
  std::int64_t batch, rows, heads, key_heads, dim, room, position;
};

// What the kernel should do, in the plainest words: round the new rows, put them behind the others, and attend to what
// codes and scales stand for.
class Plain {
 public:
  Plain(const std::vector<Tensor>& in, const Extents& s) : in_(in), s_(s) {
    out_ = {Tensor::zeros({in[0].type.dtype, {s.batch, s.rows, s.heads, s.dim}}), in[3], in[4], in[5], in[6]};
  }

  std::vector<Tensor> run() {
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t head = 0; head < s_.key_heads; ++head)
        for (std::int64_t row = 0; row < s_.rows; ++row)
          for (const std::int64_t part : {1, 2}) keep(b, head, row, part);
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t head = 0; head < s_.heads; ++head)
        for (std::int64_t row = 0; row < s_.rows; ++row) attend(b, head, row);
    return out_;
  }

 private:
  float new_row(std::int64_t part, std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t d) const {
    if (!in_[1].type.present)
      return static_cast<float>(
          in_[0][static_cast<std::size_t>((((b * s_.rows + row) * 3 + part) * s_.heads + head) * s_.dim + d)]);
    const std::int64_t heads = part == 0 ? s_.heads : s_.key_heads;
    return static_cast<float>(in_[static_cast<std::size_t>(part)]
                                 [static_cast<std::size_t>(((b * s_.rows + row) * heads + head) * s_.dim + d)]);
  }
  std::size_t place(std::int64_t b, std::int64_t head, std::int64_t row) const {
    return static_cast<std::size_t>((b * s_.key_heads + head) * s_.room + row);
  }
  double kept(std::int64_t part, std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t d) const {
    const auto codes = static_cast<std::size_t>(2 * part - 1);
    const std::size_t at = place(b, head, row);
    return out_[codes][at * static_cast<std::size_t>(s_.dim) + static_cast<std::size_t>(d)] * out_[codes + 1][at];
  }

  void keep(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t part) {
    float most = 0;
    for (std::int64_t d = 0; d < s_.dim; ++d) most = std::max(most, std::abs(new_row(part, b, row, head, d)));
    const float scale = most / 127.0F;
    const auto codes = static_cast<std::size_t>(2 * part - 1);
    const std::size_t at = place(b, head, s_.position + row);
    out_[codes + 1][at] = scale;
    for (std::int64_t d = 0; d < s_.dim; ++d)
      out_[codes][at * static_cast<std::size_t>(s_.dim) + static_cast<std::size_t>(d)] =
          scale == 0 ? 0 : std::nearbyint(new_row(part, b, row, head, d) / scale);
  }

  void attend(std::int64_t b, std::int64_t head, std::int64_t row) {
    const std::int64_t group = head / (s_.heads / s_.key_heads);
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t key = 0; key <= s_.position + row; ++key) {
      double score = 0;
      for (std::int64_t d = 0; d < s_.dim; ++d)
        score += static_cast<double>(new_row(0, b, row, head, d)) * kept(1, b, group, key, d);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s_.dim))));
      sum += weights.back();
    }
    for (std::int64_t d = 0; d < s_.dim; ++d)
      for (std::size_t key = 0; key < weights.size(); ++key)
        out_[0][static_cast<std::size_t>(((b * s_.rows + row) * s_.heads + head) * s_.dim + d)] +=
            weights[key] / sum * kept(2, b, group, static_cast<std::int64_t>(key), d);
  }

  const std::vector<Tensor>& in_;
  Extents s_;
  std::vector<Tensor> out_;
};

OpCase kept_case(const Extents& s, bool packed, DType dtype) {
  OpCase c;
  c.op = "cached_attention_int8";
  const TensorType cache{dtype, {s.batch, s.key_heads, s.room, s.dim}};
  const TensorType rows{dtype, {s.batch, s.rows, s.key_heads, s.dim}};
  if (packed)
    c.inputs = {{dtype, {s.batch, s.rows, 3, s.heads, s.dim}}, TensorType::none(), TensorType::none()};
  else
    c.inputs = {{dtype, {s.batch, s.rows, s.heads, s.dim}}, rows, rows};
  for (int part = 0; part < 2; ++part)
    c.inputs.insert(c.inputs.end(), {ops::cache_codes(cache), ops::cache_scales(cache)});
  c.inputs.push_back({DType::i32, {}});
  c.fill = [position = s.position](std::size_t input, std::size_t i) {
    if (input == 7) return static_cast<double>(position);
    if (input == 3 || input == 5) return static_cast<double>((i * 37 + input) % 255) - 127;
    if (input == 4 || input == 6) return 0.004 * (1 + static_cast<double>(i % 5));
    return 1.5 * std::sin(static_cast<double>(input) + 1.7 * static_cast<double>(i));
  };
  c.reference = [s](const std::vector<Tensor>& in) { return Plain(in, s).run(); };
  c.tolerance = dtype == DType::f32 ? 1e-5 : 1e-2;
  return c;
}

TEST(Int8CachedAttention, OneNewRow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_op(kept_case({1, 1, 1, 1, 4, 1, 0}, false, dtype));
    check_op(kept_case({2, 1, 6, 2, 17, 33, 32}, false, dtype));
    check_op(kept_case({1, 1, 3, 3, 64, 131, 70}, true, dtype));
    check_op(kept_case({1, 1, 4, 1, 129, 65, 7}, false, dtype));
    check_op(kept_case({1, 1, 2, 1, 64, 700, 650}, false, dtype));
  }
}

TEST(Int8CachedAttention, SeveralNewRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_op(kept_case({2, 7, 4, 2, 8, 20, 11}, false, dtype));
    check_op(kept_case({1, 8, 3, 3, 33, 8, 0}, true, dtype));
    check_op(kept_case({1, 65, 4, 2, 16, 200, 100}, false, dtype));
    check_op(kept_case({2, 70, 3, 3, 64, 70, 0}, true, dtype));
    check_op(kept_case({1, 9, 4, 2, 32, 700, 600}, false, dtype));
  }
}

TEST(Int8CachedAttention, ARowOfZerosIsKeptAsZeros) {
  OpCase c = kept_case({1, 2, 2, 2, 8, 5, 1}, true, DType::f32);
  const auto others = c.fill;
  c.fill = [others](std::size_t input, std::size_t i) { return input == 0 ? 0.0 : others(input, i); };
  check_op(c);
}

}  // namespace
}  // namespace trireme
