#include "trireme/ops/quantize/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/op_check.h"

namespace trireme::ops {
namespace {

using testing::check_op;
using testing::OpCase;
using testing::Tensor;

TEST(Fp8, CodesAreThoseOfTheStandard) {
  const auto e4m3 = kE4M3.values(), e5m2 = kE5M2.values();
  EXPECT_EQ(e4m3[0x7e], 448.0F);
  EXPECT_EQ(e4m3[0x38], 1.0F);
  EXPECT_EQ(e4m3[0xb9], -1.125F);
  EXPECT_EQ(e4m3[0x08], std::ldexp(1.0F, -6));
  EXPECT_EQ(e4m3[0x01], std::ldexp(1.0F, -9));
  EXPECT_TRUE(std::isnan(e4m3[0x7f]));
  EXPECT_EQ(e5m2[0x7b], 57344.0F);
  EXPECT_EQ(e5m2[0x3c], 1.0F);
  EXPECT_EQ(e5m2[0x01], std::ldexp(1.0F, -16));
  EXPECT_TRUE(std::isinf(e5m2[0x7c]));
  EXPECT_TRUE(std::isnan(e5m2[0x7d]));
}

// The nearest number; of two that are as near the one with an even code.
std::uint8_t nearest(const Fp8Format& format, float x) {
  const auto values = format.values();
  int best = 0;
  for (int code = 0; code < 0x80; ++code) {
    const float v = values[static_cast<std::size_t>(code)];
    if (!std::isfinite(v)) continue;
    const double now = std::abs(static_cast<double>(std::abs(x)) - v);
    const double then = std::abs(static_cast<double>(std::abs(x)) - values[static_cast<std::size_t>(best)]);
    if (now < then || (now == then && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

TEST(Fp8, EncodesToTheNearest) {
  for (const Fp8Format& format : {kE4M3, kE5M2}) {
    const auto values = format.values();
    for (int code = 0; code < 256; ++code) {
      const float v = values[static_cast<std::size_t>(code)];
      if (!std::isfinite(v)) continue;
      EXPECT_EQ(format.encode(v), code);
      // And what lies half way to the next, and a little to either side of that.
      const float next = values[static_cast<std::size_t>((code & 0x7f) == 0x7f ? code : code + 1)];
      if (!std::isfinite(next) || (code & 0x7f) == 0x7f) continue;
      const float middle = (v + next) / 2;
      for (const float x : {middle, std::nextafter(middle, v), std::nextafter(middle, next)})
        EXPECT_EQ(format.encode(x), nearest(format, x)) << x;
    }
    EXPECT_EQ(values[format.encode(1e30F)], format.most);
    EXPECT_EQ(values[format.encode(-std::numeric_limits<float>::infinity())], -format.most);
    EXPECT_EQ(format.encode(NAN), 0x7f);
    EXPECT_EQ(format.encode(-0.0F), 0x80);
  }
}

double wave(std::size_t i) {
  return std::sin(1.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 23) - 11);
}

const std::vector<Shape> kShapes = {Shape{1},        Shape{3, 7},     Shape{17, 33},
                                    Shape{2, 5, 64}, Shape{144, 136}, Shape{3, 100, 2, 8}};

TEST(Fp8Scale, IsThatOfTheLargest) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const char* format : {"e4m3", "e5m2"})
      for (const Shape& shape : kShapes) {
        OpCase c;
        c.op = "fp8_scale";
        c.inputs = {{dtype, shape}};
        c.attributes = {{"format", std::string(format)}};
        c.fill = [](std::size_t, std::size_t i) { return wave(i + 5); };
        c.tolerance = 1e-7;
        c.reference = [&](const std::vector<Tensor>& in) {
          double most = 0;
          for (const double x : in[0].data) most = std::max(most, std::abs(x));
          return std::vector<Tensor>{{{DType::f32, {}}, {most / static_cast<double>(fp8_format(format).most)}}};
        };
        check_op(c);
      }
}

TEST(QuantizeFp8, AsRowsAndAsColumns) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const char* format : {"e4m3", "e5m2"})
      for (const char* form : {"rows", "columns", "both"})
        for (const Shape& shape : kShapes) {
          SCOPED_TRACE(shape.str() + " " + format + " " + form);
          OpCase c;
          c.op = "quantize_fp8";
          c.inputs = {{dtype, shape}, {DType::f32, {}}};
          const std::int64_t split = shape.rank() > 2 ? 2 : shape.rank() - 1;
          c.attributes = {{"format", std::string(format)}, {"form", std::string(form)}, {"split", split}};
          const double scale = 0.37;
          c.fill = [&](std::size_t input, std::size_t i) { return input == 1 ? scale : wave(i); };
          c.tolerance = 0;
          c.reference = [&](const std::vector<Tensor>& in) {
            const Fp8Format& f = fp8_format(format);
            const std::int64_t columns = shape.elements(static_cast<int>(split), shape.rank());
            const std::int64_t rows = shape.elements() / columns;
            Tensor as_rows = Tensor::zeros({DType::u8, shape});
            Tensor as_columns = Tensor::zeros({DType::u8, shape.slice(static_cast<int>(split), shape.rank()) +
                                                              shape.slice(0, static_cast<int>(split))});
            for (std::int64_t i = 0; i < rows; ++i)
              for (std::int64_t j = 0; j < columns; ++j) {
                const auto at = static_cast<std::size_t>(i * columns + j);
                const float x = static_cast<float>(in[0][at]) * (1.0F / static_cast<float>(in[1][0]));
                as_rows[at] = as_columns[static_cast<std::size_t>(j * rows + i)] = nearest(f, x);
              }
            if (std::string(form) == "rows") return std::vector<Tensor>{as_rows};
            if (std::string(form) == "columns") return std::vector<Tensor>{as_columns};
            return std::vector<Tensor>{as_rows, as_columns};
          };
          check_op(c);
        }
}

}  // namespace
}  // namespace trireme::ops
