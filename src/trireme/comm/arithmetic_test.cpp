#include "trireme/comm/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trireme::comm {
namespace {

// Sums of 16-bit floats are rounded to nearest even once, and what is too large is infinite, in vectors and in what is
// left behind them. (Packages have kernels for processors without instructions for these conversions.)
TEST(Arithmetic, SumsOfHalvesAreRoundedAndOverflow) {
  std::vector<float> values = {1.0F, 1.0009765625F, -3.1415F, 65504.0F, -65504.0F, INFINITY, 6e-8F, 0.33333F};
  std::vector<Float16> into, from;
  for (int i = 0; i < 101; ++i) {
    into.emplace_back(values[static_cast<std::size_t>(i) % values.size()]);
    from.emplace_back(values[static_cast<std::size_t>(i * 3 + 1) % values.size()] / static_cast<float>(1 + i % 7));
  }
  std::vector<Float16> expected;
  for (std::size_t i = 0; i < into.size(); ++i)
    expected.emplace_back(static_cast<float>(into[i]) + static_cast<float>(from[i]));
  combine(into.data(), from.data(), static_cast<std::int64_t>(into.size()), DType::f16, Reduce::sum);
  bool infinite = false;
  for (std::size_t i = 0; i < into.size(); ++i) {
    infinite = infinite || std::isinf(static_cast<float>(expected[i]));
    if (std::isnan(static_cast<float>(expected[i])))
      EXPECT_TRUE(std::isnan(static_cast<float>(into[i]))) << i;
    else
      EXPECT_EQ(into[i].bits, expected[i].bits) << i << ": " << static_cast<float>(expected[i]);
  }
  EXPECT_TRUE(infinite);
}

}  // namespace
}  // namespace trireme::comm
