#pragma once
#include "trireme/ops/define.h"

// What layer_norm and rms_norm share: both normalise rows, one about the mean and one about zero.
namespace trireme::ops {

// Factors of an op on rows: the normalised dimension stays whole, leading dimensions may be cut. Each operand is
// described by one letter: 'x' rows, 'd' one row's worth, 'r' one number per row, '-' absent.
ir::Factors row_factors(const Shape& rows, std::string_view inputs, std::string_view outputs);

// Throws unless x is a compute type with a last dimension and `weight` is f32 of its extent.
void expect_rows(const TensorType& x, const TensorType& weight);

// Type of one number per row.
TensorType per_row(const TensorType& x);

// Row chunks over which gradients of weights are summed apart: from the problem alone.
struct RowChunks {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t chunks;

  RowChunks(std::int64_t rows, std::int64_t width);
  std::int64_t begin(std::int64_t chunk) const { return rows * chunk / chunks; }
};

}  // namespace trireme::ops
