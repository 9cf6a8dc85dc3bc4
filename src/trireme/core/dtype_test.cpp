#include "trireme/core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "trireme/core/error.h"

namespace trireme {
namespace {

TEST(DType, NamesParseBack) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::u16, DType::i32, DType::i64}) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    EXPECT_EQ(dispatch(dtype, [](auto zero) { return sizeof(zero); }), size_of(dtype));
  }
  EXPECT_EQ(parse_dtype("float"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
  EXPECT_THROW(dispatch_compute(DType::i32, [](auto) {}), Error);
}

// What the format's definition says, written with ldexp.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T>
class Narrow : public ::testing::Test {};

struct Float16Format {
  using Type = Float16;
  static constexpr int exponent = 5, mantissa = 10;
};
struct BFloat16Format {
  using Type = BFloat16;
  static constexpr int exponent = 8, mantissa = 7;
};
using Formats = ::testing::Types<Float16Format, BFloat16Format>;
TYPED_TEST_SUITE(Narrow, Formats);

TYPED_TEST(Narrow, EveryPatternWidensAndComesBack) {
  using T = typename TypeParam::Type;
  for (int i = 0; i < 65536; ++i) {
    T narrow;
    narrow.bits = static_cast<std::uint16_t>(i);
    const double expected = value_of(narrow.bits, TypeParam::exponent, TypeParam::mantissa);
    const auto wide = static_cast<float>(narrow);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(wide)))) << i;
    } else {
      ASSERT_EQ(static_cast<double>(wide), expected) << i;
      ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << i;
      ASSERT_EQ(T(wide).bits, narrow.bits) << i;
    }
  }
}

// Between two neighbours: below the middle goes down, above it up, and the middle itself to the even pattern.
TYPED_TEST(Narrow, RoundsToNearestEven) {
  using T = typename TypeParam::Type;
  const int infinity = ((1 << TypeParam::exponent) - 1) << TypeParam::mantissa;
  for (const int sign : {0, 0x8000})
    for (int i = 0; i + 1 < infinity; ++i) {
      T low, high;
      low.bits = static_cast<std::uint16_t>(i | sign);
      high.bits = static_cast<std::uint16_t>((i + 1) | sign);
      const double middle =
          (static_cast<double>(static_cast<float>(low)) + static_cast<double>(static_cast<float>(high))) / 2;
      const auto exact = static_cast<float>(middle);
      if (static_cast<double>(exact) != middle) continue;  // below what f32 can hold
      const float down = std::nextafter(exact, static_cast<float>(low));
      const float up = std::nextafter(exact, static_cast<float>(high));
      ASSERT_EQ(T(exact).bits, (i % 2 == 0 ? low : high).bits) << i;
      ASSERT_EQ(T(down).bits, low.bits) << i;
      ASSERT_EQ(T(up).bits, high.bits) << i;
    }
}

TEST(NarrowEdges, PastTheLargest) {
  EXPECT_EQ(Float16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(Float16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30F).bits, 0xfc00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::infinity()).bits, 0x7c00);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(BFloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(NarrowEdges, NanStaysNan) {
  // A payload in the low bits alone must not round to infinity.
  const auto payload = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(payload))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(payload))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0xffffffffU)))));
}

}  // namespace
}  // namespace trireme
