#include "trireme/ops/norm/row_norm.h"

#include <algorithm>

namespace trireme::ops {

ir::Factors row_factors(const Shape& rows, std::string_view inputs, std::string_view outputs) {
  const int leading = rows.rank() - 1;
  ir::Factors factors;
  for (int i = 0; i < leading; ++i) factors.factors.push_back({"r" + std::to_string(i), ir::Factor::Kind::free});
  factors.factors.push_back({"d", ir::Factor::Kind::whole});
  const auto side = [&](std::string_view letters) {
    std::vector<std::vector<int>> operands;
    for (const char letter : letters) {
      std::vector<int>& dims = operands.emplace_back();
      if (letter == 'x' || letter == 'r')
        for (int i = 0; i < leading; ++i) dims.push_back(i);
      if (letter == 'x' || letter == 'd') dims.push_back(leading);
    }
    return operands;
  };
  factors.inputs = side(inputs);
  factors.outputs = side(outputs);
  return factors;
}

void expect_rows(const TensorType& x, const TensorType& weight) {
  expect_compute(x, "x");
  if (x.shape.rank() < 1) fail("'x' must have at least one dimension, got {}", x.str());
  expect_type(weight, {DType::f32, {x.shape.back()}}, "weight");
}

TensorType per_row(const TensorType& x) { return {DType::f32, x.shape.slice(0, x.shape.rank() - 1)}; }

RowChunks::RowChunks(std::int64_t rows_, std::int64_t width_) : rows(rows_), width(width_) {
  constexpr std::int64_t kLeast = 16384;  // elements worth a partial sum of their own
  const std::int64_t most = std::clamp<std::int64_t>(rows, 1, 32);
  chunks = std::clamp<std::int64_t>((rows * width + kLeast - 1) / kLeast, 1, most);
}

}  // namespace trireme::ops
