#include <gtest/gtest.h>

#include <algorithm>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

OpCase slice_case(const Shape& shape, int dim, std::int64_t extent, std::int64_t position, DType dtype) {
  OpCase c;
  c.op = "sequence_slice";
  c.inputs = {{dtype, shape}, position < 0 ? TensorType::none() : TensorType{DType::i32, {}}};
  c.attributes = {{"dim", std::int64_t{dim}}, {"extent", extent}};
  c.fill = [position](std::size_t input, std::size_t element) {
    return static_cast<double>(input == 1 ? position : static_cast<std::int64_t>(element) % 251);
  };
  c.reference = [=](const std::vector<Tensor>& in) {
    Shape result = shape;
    result[dim] = extent;
    Tensor y = Tensor::zeros({dtype, result});
    const std::int64_t inner = shape.elements(dim + 1, shape.rank());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(y.data.size()); ++i) {
      const std::int64_t outer = i / (inner * extent), row = i / inner % extent;
      const std::int64_t source = std::min(std::max<std::int64_t>(position, 0) + row, shape[dim] - 1);
      y[static_cast<std::size_t>(i)] =
          in[0][static_cast<std::size_t>((outer * shape[dim] + source) * inner + i % inner)];
    }
    return std::vector<Tensor>{y};
  };
  if (position < 0 && dtype == DType::f32) c.differentiate = {0};
  return c;
}

TEST(SequenceSlice, ReadsFromAPosition) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_op(slice_case({7, 5}, 0, 3, 2, dtype));
    check_op(slice_case({2, 65, 3}, 1, 1, 64, dtype));
    check_op(slice_case({3, 33, 17}, 1, 8, 0, dtype));
    check_op(slice_case({130, 1}, 0, 130, 0, dtype));
  }
}

TEST(SequenceSlice, RepeatsTheLastElementPastTheEnd) {
  check_op(slice_case({7, 5}, 0, 4, 5, DType::f32));
  check_op(slice_case({7, 5}, 0, 9, 0, DType::f32));
  check_op(slice_case({2, 3, 4}, 1, 2, 100, DType::f32));
}

TEST(SequenceSlice, WithoutAPositionFromTheBeginning) {
  check_op(slice_case({7, 5}, 0, 3, -1, DType::f32));
  check_op(slice_case({2, 9, 3}, 1, 9, -1, DType::f32));
}

}  // namespace
}  // namespace trireme
