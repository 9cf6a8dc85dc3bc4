#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

// Whole numbers, so that every precision has the same order and some are equal.
double logit(std::size_t element) { return std::round(9 * std::sin(0.3 + 2.7 * static_cast<double>(element))); }

double reference(const std::vector<Tensor>& in) {
  const auto vocab = static_cast<std::size_t>(in[0].type.shape.back());
  double hits = 0;
  for (std::size_t row = 0; row < in[1].data.size(); ++row) {
    std::size_t largest = 0;
    for (std::size_t i = 1; i < vocab; ++i)
      if (in[0][row * vocab + i] > in[0][row * vocab + largest]) largest = i;
    hits += in[1][row] == static_cast<double>(largest) ? 1 : 0;
  }
  return hits;
}

OpCase accuracy_case(const Shape& rows, std::int64_t vocab, DType dtype) {
  OpCase c;
  c.op = "accuracy";
  c.inputs = {{dtype, rows + Shape{vocab}}, {DType::i32, rows}};
  c.attributes = {{"scale", 0.25}};
  // Every third row is right, every fifth ignored.
  c.fill = [vocab](std::size_t input, std::size_t element) {
    if (input == 0) return logit(element);
    if (element % 5 == 3) return -1.0;
    std::int64_t largest = 0;
    const auto first = element * static_cast<std::size_t>(vocab);
    for (std::int64_t i = 1; i < vocab; ++i)
      if (logit(first + static_cast<std::size_t>(i)) > logit(first + static_cast<std::size_t>(largest))) largest = i;
    return static_cast<double>(element % 3 == 0 ? largest : (largest + 1) % vocab);
  };
  c.reference = [](const std::vector<Tensor>& in) {
    Tensor share = Tensor::zeros({DType::f32, {}});
    share[0] = 0.25 * reference(in);
    return std::vector<Tensor>{share};
  };
  return c;
}

TEST(Accuracy, CountsRowsWhoseTargetIsLargest) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    check_op(accuracy_case({1}, 3, dtype));
    check_op(accuracy_case({3, 7}, 17, dtype));
    check_op(accuracy_case({65}, 33, dtype));
    check_op(accuracy_case({7}, 1003, dtype));
  }
}

// Of equal logits the first one is the prediction: a model that knows nothing is right as often as class 0 occurs.
TEST(Accuracy, TakesTheFirstOfEqualLogits) {
  OpCase c = accuracy_case({6}, 4, DType::f32);
  c.fill = [](std::size_t input, std::size_t element) { return input == 0 ? 2.0 : static_cast<double>(element % 3); };
  c.reference = [](const std::vector<Tensor>&) {
    Tensor share = Tensor::zeros({DType::f32, {}});
    share[0] = 0.25 * 2;
    return std::vector<Tensor>{share};
  };
  check_op(c);
}

}  // namespace
}  // namespace trireme
