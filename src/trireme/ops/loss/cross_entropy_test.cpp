#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/guarded.h"
#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

double logit(std::size_t element) { return 3 * std::sin(0.3 + 2.7 * static_cast<double>(element)); }

// Every fifth row is ignored.
double target(std::size_t row, std::int64_t vocab) {
  return row % 5 == 3 ? -1.0 : static_cast<double>((row * row * 7 + 3) % static_cast<std::size_t>(vocab));
}

std::vector<Tensor> reference(const std::vector<Tensor>& in, double scale) {
  const auto vocab = static_cast<std::size_t>(in[0].type.shape.back());
  Tensor loss = Tensor::zeros({DType::f32, {}});
  Tensor lse = Tensor::zeros({DType::f32, in[1].type.shape});
  for (std::size_t row = 0; row < in[1].data.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(in[0][row * vocab + i]);
    lse[row] = std::log(sum);
    if (in[1][row] >= 0) loss[0] += scale * (lse[row] - in[0][row * vocab + static_cast<std::size_t>(in[1][row])]);
  }
  return {loss, lse};
}

OpCase cross_entropy_case(const Shape& rows, std::int64_t vocab, DType dtype) {
  OpCase c;
  c.op = "cross_entropy";
  c.inputs = {{dtype, rows + Shape{vocab}}, {DType::i32, rows}};
  c.attributes = {{"scale", 0.25}};
  c.fill = [vocab](std::size_t input, std::size_t element) {
    return input == 0 ? logit(element) : target(element, vocab);
  };
  c.reference = [](const std::vector<Tensor>& in) { return reference(in, 0.25); };
  c.differentiate = {0};
  if (dtype != DType::f32) c.gradient_tolerance = 1e-2;
  return c;
}

TEST(CrossEntropy, OddSizes) {
  check_op(cross_entropy_case({1}, 3, DType::f32));
  check_op(cross_entropy_case({3, 7}, 17, DType::f32));
  check_op(cross_entropy_case({65}, 33, DType::f32));
  check_op(cross_entropy_case({2, 1, 3}, 1003, DType::f32));
}

TEST(CrossEntropy, ManyChunksOfRows) {
  OpCase c = cross_entropy_case({33, 7}, 2000, DType::f32);
  c.differentiate = {};
  check_op(c);
}

TEST(CrossEntropy, LowPrecision) {
  for (const DType dtype : {DType::bf16, DType::f16}) check_op(cross_entropy_case({7, 3}, 65, dtype));
}

TEST(CrossEntropy, NamesATargetOutsideTheVocabulary) {
  if (testing::test_device() != device::Kind::cpu) GTEST_SKIP() << "kernels of a GPU cannot throw: the row is NaN";
  OpCase c = cross_entropy_case({2, 3}, 7, DType::f32);
  c.fill = [](std::size_t input, std::size_t element) { return input == 1 && element == 4 ? 7.0 : 0.0; };
  EXPECT_NONFATAL_FAILURE(check_op(c), "target 7 at position 4 is outside a vocabulary of 7");
}

TEST(CrossEntropyGrad, InPlaceOnTheLogits) {
  OpCase c;
  c.op = "cross_entropy_grad";
  c.inputs = {{DType::f32, {7, 33}}, {DType::i32, {7}}, {DType::f32, {7}}, {DType::f32, {}}};
  c.attributes = {{"scale", 0.5}};
  c.fill = [](std::size_t input, std::size_t element) {
    return input == 0 ? logit(element) : input == 1 ? target(element, 33) : input == 2 ? 2.5 : 1.7;
  };
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor dx = in[0];
    for (std::size_t i = 0; i < dx.data.size(); ++i) {
      const double t = in[1][i / 33];
      const double onehot = static_cast<double>(i % 33) == t ? 1 : 0;
      dx[i] = t < 0 ? 0 : 0.5 * in[3][0] * (std::exp(in[0][i] - in[2][i / 33]) - onehot);
    }
    return std::vector<Tensor>{dx};
  };
  check_op(c);
}

}  // namespace
}  // namespace trireme
