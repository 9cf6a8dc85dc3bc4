#include "trireme/ops/matmul/fp8_matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/accumulate_check.h"
#include "support/guarded.h"
#include "support/op_check.h"
#include "trireme/core/error.h"
#include "trireme/ops/quantize/fp8.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

OpCase make_case(const Shape& a, const Shape& b, std::int64_t a_split, std::int64_t b_split, const char* a_format,
                 const char* b_format, DType out) {
  OpCase c;
  c.op = "matmul_fp8";
  c.inputs = {{DType::u8, a}, {DType::u8, b}, {DType::f32, {}}, {DType::f32, {}}};
  c.attributes = {{"a_split", a_split},
                  {"b_split", b_split},
                  {"a_format", std::string(a_format)},
                  {"b_format", std::string(b_format)},
                  {"out", std::string(name_of(out))}};
  // Numbers of different size and sign, none of them NaN.
  c.fill = [](std::size_t input, std::size_t i) {
    if (input > 1) return input == 2 ? 0.25 : 0.7;
    return static_cast<double>((i * 37 + i / 7) % 24 + 0x28 + (i % 3 == 0 ? 0x80 : 0));
  };
  // A Hopper GPU cuts the sums of a few dozen products to 14 bits before it adds them up in f32.
  const double sums = testing::test_device() == device::Kind::cuda ? std::exp2(-11) : 2e-6;
  c.tolerance = out == DType::f32 ? sums : out == DType::bf16 ? 4e-3 : 1e-3;
  const ir::Attributes attributes = c.attributes;
  c.reference = [=](const std::vector<Tensor>& in) {
    const MatmulProblem p = matmul_fp8_problem(in[0].type, in[1].type, attributes);
    const auto left = fp8_format(a_format).values(), right = fp8_format(b_format).values();
    Tensor y = Tensor::zeros({out, p.a_free + p.b_free});
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum += static_cast<double>(left[static_cast<std::size_t>(in[0][static_cast<std::size_t>(i * p.k + k)])]) *
                 static_cast<double>(right[static_cast<std::size_t>(in[1][static_cast<std::size_t>(j * p.k + k)])]);
        y[static_cast<std::size_t>(i * p.n + j)] = sum * in[2][0] * in[3][0];
      }
    return std::vector<Tensor>{y};
  };
  return c;
}

// Halves of these are multiples of 16, as a GPU needs them.
TEST(MatmulFp8, MultipliesByTheScales) {
  for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
    check_op(make_case({64, 96}, {32, 96}, 1, 1, "e4m3", "e4m3", out));
    check_op(make_case({2, 16, 4, 16}, {32, 4, 16}, 2, 1, "e5m2", "e4m3", out));
    check_op(make_case({32, 160}, {3, 32, 160}, 1, 2, "e4m3", "e5m2", out));
    testing::check_accumulates(make_case({160, 208}, {64, 208}, 1, 1, "e5m2", "e4m3", out));
  }
}

TEST(MatmulFp8, RefusesWhatNoGpuMultiplies) {
  const ir::OpDef def = matmul_fp8_def();
  const OpCase c = make_case({16, 16}, {16, 16}, 1, 1, "e5m2", "e5m2", DType::bf16);
  ir::Attributes attributes = c.attributes;
  attributes.set("fast", false);
  EXPECT_THROW(def.infer(c.inputs, attributes), Error);
}

}  // namespace
}  // namespace trireme::ops
