#include "trireme/ops/simd.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace trireme::ops {
namespace {

struct Range {
  double low;
  double high;
};

// The largest relative error of f over `range` where the exact result is a normal number.
template <class F>
double worst_error(F f, double (*exact)(double), Range range) {
  constexpr std::int64_t n = 200003;
  std::vector<float> x(n);
  std::vector<float> y(n);
  for (std::int64_t i = 0; i < n; ++i)
    x[static_cast<std::size_t>(i)] =
        static_cast<float>(range.low + (range.high - range.low) * static_cast<double>(i) / (n - 1));
  simd::map(n, y.data(), f, static_cast<const float*>(x.data()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(x[i]);
    if (std::abs(expected) < std::numeric_limits<float>::min()) continue;
    const double error = std::abs(y[i] - expected) / std::abs(expected);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

TEST(Simd, FunctionsAreAccurate) {
  const auto exp = [](simd::Vec v) { return simd::exp(v); };
  const auto tanh = [](simd::Vec v) { return simd::tanh(v); };
  const auto erf = [](simd::Vec v) { return simd::erf(v); };
  const auto sigmoid = [](simd::Vec v) { return simd::sigmoid(v); };
  for (const Range range : {Range{-87, 88.7}, Range{-1, 1}, Range{-1e-3, 1e-3}}) {
    EXPECT_LE(worst_error(
                  exp, [](double v) { return std::exp(v); }, range),
              1.2e-7);
    EXPECT_LE(worst_error(
                  tanh, [](double v) { return std::tanh(v); }, range),
              1.8e-7);
    EXPECT_LE(worst_error(
                  erf, [](double v) { return std::erf(v); }, range),
              1.8e-7);
    EXPECT_LE(worst_error(
                  sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }, range),
              1.8e-7);
  }
  EXPECT_LE(worst_error(erf, [](double v) { return std::erf(v); }, {-6, 6}), 1.8e-7);
  EXPECT_LE(worst_error(tanh, [](double v) { return std::tanh(v); }, {-12, 12}), 1.8e-7);
}

TEST(Simd, FunctionsAtTheEdges) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto at = [](auto f, float x) {
    float y = 0;
    simd::map(1, &y, f, static_cast<const float*>(&x));
    return y;
  };
  const auto exp = [](simd::Vec v) { return simd::exp(v); };
  EXPECT_EQ(at(exp, inf), inf);
  EXPECT_EQ(at(exp, 89), inf);
  EXPECT_EQ(at(exp, -inf), 0);
  EXPECT_EQ(at(exp, 0), 1);
  EXPECT_NEAR(at(exp, -100) / 3.7835e-44, 1, 0.05);  // subnormal
  EXPECT_TRUE(std::isnan(at(exp, NAN)));
  const auto tanh = [](simd::Vec v) { return simd::tanh(v); };
  EXPECT_EQ(at(tanh, inf), 1);
  EXPECT_EQ(at(tanh, -inf), -1);
  EXPECT_TRUE(std::isnan(at(tanh, NAN)));
  const auto erf = [](simd::Vec v) { return simd::erf(v); };
  EXPECT_EQ(at(erf, inf), 1);
  EXPECT_EQ(at(erf, -inf), -1);
  EXPECT_TRUE(std::isnan(at(erf, NAN)));
  const auto sigmoid = [](simd::Vec v) { return simd::sigmoid(v); };
  EXPECT_EQ(at(sigmoid, inf), 1);
  EXPECT_EQ(at(sigmoid, -inf), 0);
  EXPECT_TRUE(std::isnan(at(sigmoid, NAN)));
}

// Vector loads and stores give what the scalar conversions give, for every pattern of 16 bits and for values between.
template <class T>
void check_conversions() {
  std::vector<T> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  simd::map(
      65536, wide.data(), [](simd::Vec v) { return v; }, static_cast<const T*>(all.data()));
  std::vector<float> values;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto expected = static_cast<float>(all[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
      for (const float nudge : {0.0F, 0.25F, 0.5F, 0.75F})  // of the distance to the next value away from zero
        if (T next; (all[i].bits & 0x7fffU) + 1 < 0x7c00U) {
          next.bits = static_cast<std::uint16_t>(all[i].bits + 1);
          values.push_back(expected + nudge * (static_cast<float>(next) - expected));
        }
    }
  }
  values.insert(values.end(), {INFINITY, -INFINITY, NAN, 3.4e38F, -3.4e38F, 1e-45F, 65519.9F, 65520.0F});
  std::vector<T> narrow(values.size());
  simd::map(
      static_cast<std::int64_t>(values.size()), narrow.data(), [](simd::Vec v) { return v; },
      static_cast<const float*>(values.data()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]))
      ASSERT_TRUE(std::isnan(static_cast<float>(narrow[i])));
    else
      ASSERT_EQ(narrow[i].bits, T(values[i]).bits) << values[i];
  }
}

TEST(Simd, ConvertsBFloat16) { check_conversions<BFloat16>(); }
TEST(Simd, ConvertsFloat16) { check_conversions<Float16>(); }

template <class T>
void check_tails() {
  for (std::int64_t n = 0; n <= simd::kLanes; ++n) {
    std::vector<T> from(static_cast<std::size_t>(n), T(3.0F));
    std::vector<T> to(static_cast<std::size_t>(simd::kLanes) + 1, T(7.0F));
    simd::store_n(simd::load_n(from.data(), n), to.data(), n);
    for (std::int64_t i = 0; i <= simd::kLanes; ++i)
      EXPECT_EQ(static_cast<float>(to[static_cast<std::size_t>(i)]), i < n ? 3.0F : 7.0F)
          << "element " << i << " of " << n;
    EXPECT_EQ(simd::sum(simd::load_n(from.data(), n)), 3.0F * static_cast<float>(n));
    EXPECT_EQ(simd::max(simd::keep_n(simd::set(-1), n, -5)), n > 0 ? -1 : -5);
  }
}

TEST(Simd, TailsStayInside) {
  check_tails<float>();
  check_tails<BFloat16>();
  check_tails<Float16>();
}

}  // namespace
}  // namespace trireme::ops
