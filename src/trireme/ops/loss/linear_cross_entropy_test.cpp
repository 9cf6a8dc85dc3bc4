#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/guarded.h"
#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

// Every fifth row is ignored.
double target(std::size_t row, std::int64_t vocab) {
  return row % 5 == 3 ? -1.0 : static_cast<double>((row * row * 7 + 3) % static_cast<std::size_t>(vocab));
}

std::vector<Tensor> reference(const std::vector<Tensor>& in, double scale, bool gradients, const std::string& out) {
  const double dloss = in.size() > 3 ? in[3][0] : 1;
  const auto vocab = static_cast<std::size_t>(in[1].type.shape[0]), dim = static_cast<std::size_t>(in[1].type.shape[1]);
  Tensor loss = Tensor::zeros({DType::f32, {}}), dx = Tensor::zeros(in[0].type);
  Tensor dweight = Tensor::zeros({out == "f32" ? DType::f32 : in[1].type.dtype, in[1].type.shape});
  for (std::size_t row = 0; row < in[2].data.size(); ++row) {
    if (in[2][row] < 0) continue;
    const auto wanted = static_cast<std::size_t>(in[2][row]);
    std::vector<double> logits(vocab);
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) {
      for (std::size_t d = 0; d < dim; ++d) logits[v] += in[0][row * dim + d] * in[1][v * dim + d];
      sum += std::exp(logits[v]);
    }
    loss[0] += scale * (std::log(sum) - logits[wanted]);
    if (!gradients) continue;
    for (std::size_t v = 0; v < vocab; ++v) {
      const double p = dloss * scale * (std::exp(logits[v]) / sum - (v == wanted ? 1 : 0));
      for (std::size_t d = 0; d < dim; ++d) {
        dx[row * dim + d] += p * in[1][v * dim + d];
        dweight[v * dim + d] += p * in[0][row * dim + d];
      }
    }
  }
  if (gradients) return {loss, dx, dweight};
  return {loss};
}

OpCase linear_case(const Shape& rows, std::int64_t vocab, std::int64_t dim, DType dtype, bool gradients,
                   std::int64_t chunk = 0, const std::string& out = "same") {
  OpCase c;
  c.op = "linear_cross_entropy";
  c.inputs = {{dtype, rows + Shape{dim}}, {dtype, {vocab, dim}}, {DType::i32, rows}};
  c.attributes = {{"scale", 0.25}, {"with_gradients", gradients}, {"chunk", chunk}, {"out", out}};
  c.fill = [vocab](std::size_t input, std::size_t element) {
    return input == 2 ? target(element, vocab) : std::sin(0.3 + 2.7 * static_cast<double>(element + 5 * input));
  };
  c.reference = [gradients, out](const std::vector<Tensor>& in) { return reference(in, 0.25, gradients, out); };
  if (dtype != DType::f32) c.tolerance = c.gradient_tolerance = 1e-2;
  return c;
}

TEST(LinearCrossEntropy, OddSizes) {
  for (const bool gradients : {false, true}) {
    check_op(linear_case({1}, 3, 1, DType::f32, gradients));
    check_op(linear_case({3, 7}, 17, 33, DType::f32, gradients));
    check_op(linear_case({2, 65}, 130, 7, DType::f32, gradients));
    check_op(linear_case({2, 131}, 1103, 17, DType::f32, gradients));
  }
}

TEST(LinearCrossEntropy, ChunksOfRows) {
  for (const std::int64_t chunk : {1, 3, 16, 128, 256}) check_op(linear_case({300}, 67, 9, DType::f32, true, chunk));
}

TEST(LinearCrossEntropy, Gradient) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OpCase c = linear_case({3, 5}, 33, 17, dtype, false);
    c.differentiate = {0, 1};
    check_op(c);
  }
}

TEST(LinearCrossEntropy, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const bool gradients : {false, true}) {
      check_op(linear_case({3, 7}, 17, 33, dtype, gradients));
      check_op(linear_case({131}, 600, 65, dtype, gradients));
      check_op(linear_case({131}, 600, 65, dtype, gradients, 0, "f32"));
    }
}

// Between chunks the sums are as exact as in f32: what is rounded, is rounded at the end.
TEST(LinearCrossEntropy, LowGradientsAreRoundedOnce) {
  for (const std::int64_t chunk : {1, 16, 128, 300}) {
    OpCase c = linear_case({300}, 67, 9, DType::f16, true, chunk);
    c.tolerance = 0x1p-11;  // half a unit in the last place; rounding with every chunk makes twenty times that
    check_op(c);
    check_op(linear_case({300}, 67, 9, DType::bf16, true, chunk));
  }
}

// In f16 a gradient of 1 would vanish here; scaled before it is rounded, it does not.
TEST(LinearCrossEntropy, GradientOfTheLossIsAppliedBeforeRounding) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    OpCase c = linear_case({300}, 67, 9, dtype, true, 128);
    c.inputs.push_back({DType::f32, {}});
    c.attributes.set("scale", 1e-6);
    const auto values = c.fill;
    c.fill = [values](std::size_t input, std::size_t element) { return input == 3 ? 65536.0 : values(input, element); };
    c.reference = [](const std::vector<Tensor>& in) { return reference(in, 1e-6, true, "same"); };
    check_op(c);
  }
}

TEST(LinearCrossEntropy, NamesATargetOutsideTheVocabulary) {
  if (testing::test_device() != device::Kind::cpu) GTEST_SKIP() << "kernels of a GPU cannot throw: the row is NaN";
  OpCase c = linear_case({2, 3}, 7, 4, DType::f32, false);
  c.fill = [](std::size_t input, std::size_t element) { return input == 2 && element == 4 ? 7.0 : 0.0; };
  EXPECT_NONFATAL_FAILURE(check_op(c), "target 7 at position 4 is outside a vocabulary of 7");
}

}  // namespace
}  // namespace trireme
