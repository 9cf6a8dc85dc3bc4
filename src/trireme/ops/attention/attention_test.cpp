#include "trireme/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

struct Sizes {
  std::int64_t batch, queries, keys, heads, key_heads, dim;
};

// Documents of so many tokens, again and again; every row of the batch begins within the first of them at another
// place. Without any a query sees all keys before it.
struct Documents {
  std::vector<std::int64_t> lengths = {};

  std::int64_t start(std::int64_t batch, std::int64_t position) const {
    if (lengths.empty()) return 0;
    std::int64_t begin = -batch % lengths.front();
    for (std::size_t n = 0;; ++n) {
      const std::int64_t end = begin + lengths[n % lengths.size()];
      if (end > position) return std::max<std::int64_t>(begin, 0);
      begin = end;
    }
  }
};

// Plain attention over [b,s,h,d], [b,t,g,d], [b,t,g,d]; a packed q is split first.
std::vector<Tensor> reference(const std::vector<Tensor>& in, const Sizes& z, bool causal, double scale,
                              const Documents& documents) {
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
        const std::int64_t start = documents.start(b, i);
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = start; j < seen; ++j) {
          double score = 0;
          for (std::int64_t c = 0; c < z.dim; ++c) score += at(0, b, i, h, c) * at(1, b, j, g, c);
          weights.push_back(std::exp(scale * score));
          sum += weights.back();
        }
        lse[static_cast<std::size_t>((b * z.heads + h) * z.queries + i)] = std::log(sum);
        for (std::int64_t j = start; j < seen; ++j)
          for (std::int64_t c = 0; c < z.dim; ++c)
            out[static_cast<std::size_t>(((b * z.queries + i) * z.heads + h) * z.dim + c)] +=
                weights[static_cast<std::size_t>(j - start)] / sum * at(2, b, j, g, c);
      }
  return {out, lse};
}

double number(std::size_t input, std::size_t element) {
  return static_cast<double>((element * 2654435761U + input * 40503U) % 4093) / 2046.5 - 1;
}

// Values for all inputs but starts by `others`.
std::function<double(std::size_t, std::size_t)> filled(const Sizes& z, const Documents& documents, std::size_t starts,
                                                       double (*others)(std::size_t, std::size_t)) {
  return [=](std::size_t input, std::size_t element) {
    if (input != starts) return others(input, element);
    const auto at = static_cast<std::int64_t>(element);
    return static_cast<double>(documents.start(at / z.queries, at % z.queries));
  };
}

OpCase attention_case(const Sizes& z, DType dtype, bool packed, bool causal, double scale = 0,
                      const Documents& documents = {}) {
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
  c.reference = [=](const std::vector<Tensor>& in) { return reference(in, z, causal, factor, documents); };
  if (!documents.lengths.empty()) {
    c.inputs.push_back({DType::i32, {z.batch, z.queries}});
    c.fill = filled(z, documents, 3, number);
  }
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

// The gradient's own arithmetic, from whatever o and lse it is given.
std::vector<Tensor> gradient_reference(const std::vector<Tensor>& in, const Sizes& z, bool packed, bool causal,
                                       const Documents& documents) {
  const double scale = 1 / std::sqrt(static_cast<double>(z.dim));
  const auto width = static_cast<std::size_t>(z.dim);
  const auto at = [&](std::int64_t part, std::int64_t b, std::int64_t row, std::int64_t head) {
    const std::int64_t heads = part == 0 ? z.heads : z.key_heads;
    return static_cast<std::size_t>(packed ? ((b * z.queries + row) * 3 + part) * heads + head
                                           : (b * z.queries + row) * heads + head) *
           width;
  };
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < 3; ++i) out.push_back(Tensor::zeros(in[packed ? 0 : i].type));
  const Tensor &q = in[0], &k = in[packed ? 0 : 1], &v = in[packed ? 0 : 2];
  Tensor &dq = out[0], &dk = out[packed ? 0 : 1], &dv = out[packed ? 0 : 2];
  for (std::int64_t b = 0; b < z.batch; ++b)
    for (std::int64_t h = 0; h < z.heads; ++h)
      for (std::int64_t i = 0; i < z.queries; ++i) {
        const std::int64_t g = h / (z.heads / z.key_heads);
        const std::size_t row = static_cast<std::size_t>((b * z.queries + i) * z.heads + h) * width,
                          qi = at(0, b, i, h);
        const double lse = in[4][static_cast<std::size_t>((b * z.heads + h) * z.queries + i)];
        double delta = 0;
        for (std::size_t c = 0; c < width; ++c) delta += in[3][row + c] * in[5][row + c];
        for (std::int64_t j = documents.start(b, i); j < (causal ? i + 1 : z.keys); ++j) {
          const std::size_t kj = at(1, b, j, g), vj = at(2, b, j, g);
          double score = 0, dp = 0;
          for (std::size_t c = 0; c < width; ++c) {
            score += q[qi + c] * k[kj + c];
            dp += in[5][row + c] * v[vj + c];
          }
          const double p = std::exp(scale * score - lse), ds = p * (dp - delta) * scale;
          for (std::size_t c = 0; c < width; ++c) {
            dq[qi + c] += ds * k[kj + c];
            dk[kj + c] += ds * q[qi + c];
            dv[vj + c] += p * in[5][row + c];
          }
        }
      }
  if (packed) out.resize(1);
  return out;
}

double gradient_number(std::size_t input, std::size_t element) {
  return input == 4 ? 3 + 0.25 * static_cast<double>(element % 5) : number(input, element);
}

OpCase gradient_case(const Sizes& z, DType dtype, bool packed, bool causal, const Documents& documents = {}) {
  OpCase c = attention_case(z, dtype, packed, causal);
  c.op = "attention_grad";
  c.inputs.push_back({dtype, {z.batch, z.queries, z.heads, z.dim}});
  c.inputs.push_back({DType::f32, {z.batch, z.heads, z.queries}});
  c.inputs.push_back({dtype, {z.batch, z.queries, z.heads, z.dim}});
  if (!documents.lengths.empty()) c.inputs.push_back({DType::i32, {z.batch, z.queries}});
  c.fill = filled(z, documents, 6, gradient_number);
  c.reference = [=](const std::vector<Tensor>& in) { return gradient_reference(in, z, packed, causal, documents); };
  c.differentiate = {};
  return c;
}

// Sizes that the kernels for tensor cores take, those at the edges of what they do, and those between.
TEST(Attention, GradientOfWholeBlocks) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    check_op(gradient_case({2, 128, 128, 2, 2, 64}, dtype, true, true));
    check_op(gradient_case({1, 384, 384, 3, 3, 64}, dtype, true, true));
    check_op(gradient_case({2, 256, 256, 4, 2, 64}, dtype, false, true));
    check_op(gradient_case({1, 192, 192, 2, 2, 64}, dtype, true, true));
    check_op(gradient_case({1, 128, 128, 2, 1, 128}, dtype, false, true));
    check_op(gradient_case({1, 128, 128, 2, 2, 64}, dtype, true, false));
    check_op(gradient_case({1, 384, 384, 4, 2, 128}, dtype, false, true));
    check_op(gradient_case({1, 256, 256, 3, 1, 128}, dtype, false, false));
  }
}

// Wider than what the kernel for Hopper takes.
TEST(Attention, WideHeadsOfWholeBlocks) {
  const std::vector<Sizes> wide = {{1, 128, 128, 2, 2, 256}, {2, 192, 192, 4, 2, 192}, {1, 256, 256, 2, 1, 160}};
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Sizes& z : wide)
      for (const bool causal : {true, false}) {
        OpCase c = attention_case(z, dtype, z.heads == z.key_heads, causal);
        c.differentiate = {};
        check_op(c);
        check_op(gradient_case(z, dtype, z.heads == z.key_heads, causal));
      }
}

// So many heads that blocks of keys are taken in more than one order.
TEST(Attention, GradientOfManyHeads) {
  check_op(gradient_case({2, 130, 130, 150, 150, 8}, DType::bf16, true, true));
  check_op(gradient_case({1, 130, 130, 150, 150, 72}, DType::bf16, true, true));
}

// Several blocks of rows, the last of them not whole, and heads of every width that a kernel is made for.
const std::vector<Sizes> kUneven = {{1, 131, 131, 2, 2, 80}, {2, 70, 70, 2, 1, 64},   {1, 100, 100, 1, 1, 128},
                                    {1, 97, 97, 1, 1, 200},  {1, 193, 193, 2, 1, 96}, {1, 257, 257, 4, 2, 128}};

TEST(Attention, UnevenSizes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& z : kUneven)
      for (const bool causal : {true, false}) {
        OpCase c = attention_case(z, dtype, z.heads == z.key_heads, causal);
        c.differentiate = {};
        check_op(c);
        check_op(gradient_case(z, dtype, z.heads == z.key_heads, causal));
      }
}

// Documents within a block of queries, across several, and many that end where blocks do.
TEST(Attention, Documents) {
  const std::vector<Documents> all = {{{5}}, {{64}}, {{128}}, {{1, 40, 3, 130, 200}}, {{300}}};
  for (const Documents& documents : all) {
    check_op(attention_case({2, 9, 9, 4, 2, 8}, DType::f32, false, true, 0, documents));
    check_op(attention_case({2, 65, 65, 2, 2, 4}, DType::f32, true, true, 0.3, documents));
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& z : std::vector<Sizes>{
             {3, 384, 384, 2, 2, 64}, {2, 515, 515, 4, 2, 128}, {2, 131, 131, 2, 2, 80}, {1, 257, 257, 2, 1, 200}})
      for (const Documents& documents : all) {
        OpCase c = attention_case(z, dtype, z.heads == z.key_heads, true, 0, documents);
        c.differentiate = {};
        check_op(c);
        check_op(gradient_case(z, dtype, z.heads == z.key_heads, true, documents));
      }
  // So many heads that blocks of keys are taken in more than one order.
  check_op(gradient_case({2, 300, 300, 150, 150, 8}, DType::bf16, true, true, {{40, 150}}));
}

// Small enough for a checker of races.
TEST(Attention, DocumentsOfFewBlocks) {
  for (const Sizes& z : std::vector<Sizes>{{1, 300, 300, 2, 1, 128}, {1, 300, 300, 1, 1, 64}}) {
    OpCase c = attention_case(z, DType::bf16, z.heads == z.key_heads, true, 0, {{40, 150}});
    c.differentiate = {};
    check_op(c);
    check_op(gradient_case(z, DType::bf16, z.heads == z.key_heads, true, {{40, 150}}));
  }
}

TEST(Attention, DocumentsAreOfCausalAttention) {
  OpCase c = attention_case({1, 4, 4, 1, 1, 4}, DType::f32, true, false, 0, {{2}});
  EXPECT_THROW(ops::attention_def().infer(c.inputs, c.attributes), Error);
}

TEST(Attention, Tf32) {
  for (const Sizes& z : kUneven) {
    OpCase c = attention_case(z, DType::f32, false, true);
    c.differentiate = {};
    OpCase gradient = gradient_case(z, DType::f32, false, true);
    for (OpCase* one : {&c, &gradient}) {
      one->attributes.set("tf32", true);
      one->tolerance = 2e-3;
      check_op(*one);
    }
  }
}

}  // namespace
}  // namespace trireme
