#include "trireme/ops/loss/loss.h"

namespace trireme::ops {

std::string row_factors(int count, const std::string& last) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("r{}= ", i);
  text += last;
  return text.empty() ? "-" : text;
}

TensorType target_type(const TensorType& rows) { return {DType::i32, rows.shape.slice(0, rows.shape.rank() - 1)}; }

void expect_logits(const TensorType& logits, const char* operand) {
  expect_compute(logits, operand);
  if (logits.shape.rank() < 1 || logits.shape.back() < 1)
    fail("'{}' must have a last dimension of at least 1, got {}", operand, logits.str());
}

ir::IndexRange classes_of_logits(std::span<const TensorType> inputs, const ir::Attributes&) {
  return {inputs[0].shape.back(), true};
}

}  // namespace trireme::ops
