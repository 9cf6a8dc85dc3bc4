#include "trireme/comm/arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::comm {
namespace {

// The half that is nearest to a number, the even one of two; from 65520 on there is none but infinity.
double nearest_half(double value) {
  const double size = std::abs(value);
  if (std::isnan(value) || size >= 65520) return std::isnan(value) ? value : std::copysign(INFINITY, value);
  int exponent = 0;
  std::frexp(size, &exponent);
  const int last = std::max(exponent - 11, -24);  // of the last bit
  return std::copysign(std::ldexp(std::nearbyint(std::ldexp(size, -last)), last), value);
}

// Sums of 16-bit floats are rounded to nearest even once, and what is too large is infinite, in vectors and in what is
// left behind them. (Packages have kernels for processors without instructions for these conversions.)
TEST(Arithmetic, SumsOfHalvesAreRoundedAndOverflow) {
  const std::vector<float> values = {1.0F, 1.0009765625F, -3.1415F, 65504.0F, -65504.0F, INFINITY, 6e-8F, 0.33333F};
  std::vector<Float16> left, right;
  for (int i = 0; i < 101; ++i) {
    left.emplace_back(values[static_cast<std::size_t>(i) % values.size()]);
    right.emplace_back(values[static_cast<std::size_t>(i * 3 + 1) % values.size()] / static_cast<float>(1 + i % 7));
  }
  const auto count = static_cast<std::int64_t>(left.size());
  std::vector<Float16> by_processor = left, portably = left;
  combine(by_processor.data(), right.data(), count, DType::f16, Reduce::sum);
  combine_portably(portably.data(), right.data(), count, Reduce::sum);
  int infinite = 0, rounded = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    // Exact in f64.
    const double sum = static_cast<double>(static_cast<float>(left[i])) + static_cast<float>(right[i]);
    const double expected = nearest_half(sum);
    infinite += std::isinf(expected) && !std::isinf(static_cast<float>(left[i])) ? 1 : 0;
    rounded += expected != sum && std::isfinite(expected) ? 1 : 0;
    for (const Float16 got : {by_processor[i], portably[i]}) {
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(static_cast<float>(got))) << i;
      else
        EXPECT_EQ(static_cast<float>(got), expected) << i << ": " << sum;
    }
  }
  EXPECT_GT(infinite, 0);
  EXPECT_GT(rounded, 10);
}

}  // namespace
}  // namespace trireme::comm
