#include "trireme/train/sampling.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 2.0F, -1.0F};

std::set<std::int32_t> drawn(const Sampling& sampling) {
  TokenSampler sampler(sampling);
  std::set<std::int32_t> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(sampler.draw(kLogits, i / 1000.0));
  return tokens;
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(drawn({.temperature = 0}), std::set<std::int32_t>{1});
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 1}), std::set<std::int32_t>{1});
}

TEST(Sampling, FrequenciesAreThoseOfTheSoftmax) {
  TokenSampler sampler({.temperature = 0.7});
  std::array<double, 5> count{};
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) count[static_cast<std::size_t>(sampler.draw(kLogits, (i + 0.5) / kDraws))] += 1;
  double total = 0;
  for (const float l : kLogits) total += std::exp(static_cast<double>(l) / 0.7);
  for (std::size_t t = 0; t < kLogits.size(); ++t)
    EXPECT_NEAR(count[t] / kDraws, std::exp(static_cast<double>(kLogits[t]) / 0.7) / total, 2e-5) << t;
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 99}).size(), 5U);
}

TEST(Sampling, TopPKeepsTheFewestThatAddUp) {
  // Probabilities at temperature 1: 0.40, 0.40, 0.15, 0.05, 0.02 of tokens 1, 3, 2, 0, 4.
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.3}), std::set<std::int32_t>{1});
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.5}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.9}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .top_p = 0.99}), (std::set<std::int32_t>{1, 3}));
}

TEST(Sampling, RefusesLogitsThatAreNotFinite) {
  TokenSampler sampler({.temperature = 1});
  const std::vector<float> bad = {0.0F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(sampler.draw(bad, 0.5), Error);
}

}  // namespace
}  // namespace trireme::train
