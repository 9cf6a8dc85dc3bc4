#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/guarded.h"
#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

double value(std::size_t element) { return std::sin(0.3 + 2.7 * static_cast<double>(element)); }

// Some tokens often, some never.
double token(std::size_t position, std::int64_t vocab) {
  const auto v = static_cast<std::size_t>(vocab);
  return static_cast<double>(position % 3 == 0 ? 0 : (position * position * 7 + 3) % v);
}

OpCase embedding_case(const Shape& tokens, std::int64_t vocab, std::int64_t width, DType dtype) {
  OpCase c;
  c.op = "embedding";
  c.inputs = {{DType::i32, tokens}, {dtype, {vocab, width}}};
  c.fill = [vocab](std::size_t input, std::size_t element) {
    return input == 0 ? token(element, vocab) : value(element);
  };
  c.reference = [=](const std::vector<Tensor>& in) {
    Tensor y = Tensor::zeros({dtype, tokens + Shape{width}});
    const auto w = static_cast<std::size_t>(width);
    for (std::size_t i = 0; i < y.data.size(); ++i) y[i] = in[1][static_cast<std::size_t>(in[0][i / w]) * w + i % w];
    return std::vector<Tensor>{y};
  };
  c.differentiate = {1};
  if (dtype != DType::f32) c.tolerance = c.gradient_tolerance = 1e-2;
  return c;
}

TEST(Embedding, OddSizes) {
  check_op(embedding_case({1}, 1, 1, DType::f32));
  check_op(embedding_case({3, 7}, 17, 33, DType::f32));
  check_op(embedding_case({2, 3, 5}, 65, 7, DType::f32));
  check_op(embedding_case({4, 65}, 33, 300, DType::f32));
}

// Tokens at far more positions than others: over several hundred, side by side in the order of tokens, and all the
// same.
TEST(Embedding, OftenTheSameToken) {
  const auto often = [](std::int64_t vocab, std::int64_t width, std::size_t one, std::size_t other) {
    OpCase c = embedding_case({3, 400}, vocab, width, DType::f32);
    c.fill = [=](std::size_t input, std::size_t element) {
      if (input == 1) return value(element);
      if (element % 2 == 0) return static_cast<double>(one);
      return element % 3 == 0 ? static_cast<double>(other) : token(element, vocab);
    };
    return c;
  };
  check_op(often(33, 12, 4, 5));
  check_op(often(33, 7, 5, 4));
  check_op(often(33, 8, 0, 32));
  check_op(often(1, 4, 0, 0));
}

// Rows that another place has.
TEST(Embedding, MaskedTokensGiveZerosAndNoGradient) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OpCase c = embedding_case({3, 17}, 9, 33, dtype);
    c.attributes = {{"masked", true}};
    c.fill = [](std::size_t input, std::size_t element) {
      if (input != 0) return value(element);
      return element % 4 == 1 ? -1.0 : token(element, 9);
    };
    c.reference = [dtype](const std::vector<Tensor>& in) {
      Tensor y = Tensor::zeros({dtype, {3, 17, 33}});
      for (std::size_t i = 0; i < y.data.size(); ++i)
        y[i] = in[0][i / 33] < 0 ? 0 : in[1][static_cast<std::size_t>(in[0][i / 33]) * 33 + i % 33];
      return std::vector<Tensor>{y};
    };
    c.differentiate = {};
    check_op(c);

    OpCase g;
    g.op = "embedding_grad";
    g.inputs = {{DType::i32, {3, 17}}, {dtype, {3, 17, 33}}};
    g.attributes = {{"masked", true}, {"vocab", std::int64_t{9}}};
    g.fill = c.fill;
    g.reference = [dtype](const std::vector<Tensor>& in) {
      Tensor y = Tensor::zeros({dtype, {9, 33}});
      for (std::size_t i = 0; i < in[1].data.size(); ++i)
        if (in[0][i / 33] >= 0) y[static_cast<std::size_t>(in[0][i / 33]) * 33 + i % 33] += in[1][i];
      return std::vector<Tensor>{y};
    };
    if (dtype != DType::f32) g.tolerance = 1e-2;
    check_op(g);
  }
}

TEST(LocalTokens, CountFromTheFirstRowOfAPlace) {
  OpCase c;
  c.op = "local_tokens";
  c.inputs = {{DType::i32, {2, 19}}, {DType::i64, {}}};
  c.attributes = {{"vocab", std::int64_t{50}}, {"rows", std::int64_t{17}}};
  c.fill = [](std::size_t input, std::size_t element) {
    return input == 1 ? 1.0 : static_cast<double>(element * 7 % 50);
  };
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    for (double& t : y.data) t = t >= 17 && t < 34 ? t - 17 : -1;
    return std::vector<Tensor>{y};
  };
  check_op(c);
}

TEST(Embedding, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) check_op(embedding_case({3, 17}, 33, 65, dtype));
}

TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  if (testing::test_device() != device::Kind::cpu) GTEST_SKIP() << "kernels of a GPU cannot throw: the row is NaN";
  OpCase c = embedding_case({2, 3}, 7, 4, DType::f32);
  c.fill = [](std::size_t input, std::size_t element) { return input == 0 ? (element == 4 ? 7.0 : 1.0) : 0.0; };
  EXPECT_NONFATAL_FAILURE(check_op(c), "token 7 at position 4 is outside a vocabulary of 7");
}

TEST(EmbeddingGrad, SumsInF32) {
  OpCase c;
  c.op = "embedding_grad";
  const std::int64_t vocab = 19, width = 70;
  c.inputs = {{DType::i32, {5, 33}}, {DType::bf16, {5, 33, width}}};
  c.attributes = {{"vocab", vocab}, {"out", std::string("f32")}};
  c.fill = [](std::size_t input, std::size_t element) { return input == 0 ? token(element, vocab) : value(element); };
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor table = Tensor::zeros({DType::f32, {vocab, width}});
    const auto w = static_cast<std::size_t>(width);
    for (std::size_t i = 0; i < in[1].data.size(); ++i)
      table[static_cast<std::size_t>(in[0][i / w]) * w + i % w] += in[1][i];
    return std::vector<Tensor>{table};
  };
  check_op(c);
}

}  // namespace
}  // namespace trireme
