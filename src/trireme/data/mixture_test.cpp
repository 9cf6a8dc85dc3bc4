#include "trireme/data/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/folder.h"
#include "support/token_files.h"
#include "trireme/data/sampler.h"

namespace trireme::data {
namespace {

using test::expect_contains;
using test::Folder;
using test::refusal;

TEST(Mixture, SharesHoldAfterEveryPosition) {
  const std::vector<std::vector<double>> cases = {
      {0.7, 0.3},   {1, 1, 1}, {0.5, 0.25, 0.125, 0.125},  {997, 2, 1}, {3, 1, 4, 1, 5, 9, 2, 6},
      {1e-3, 1, 1}, {42},      {0.1, 0.2, 0.3, 0.15, 0.25}};
  for (const std::vector<double>& weights : cases) {
    const Mixture mixture(weights);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<std::uint64_t> seen(weights.size());
    for (std::uint64_t p = 0; p < 3 * Mixture::kBlock; ++p) {
      const Mixture::Place place = mixture.at(p);
      ASSERT_EQ(place.ordinal, seen[place.source]++);
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const double due = static_cast<double>(p + 1) * mixture.quota(k) / Mixture::kBlock;
        ASSERT_LT(std::abs(static_cast<double>(seen[k]) - due), 1.0) << "source " << k << " after " << p + 1;
      }
    }
    for (std::size_t k = 0; k < weights.size(); ++k) {
      EXPECT_EQ(seen[k], 3 * mixture.quota(k));
      EXPECT_LE(std::abs(mixture.quota(k) - weights[k] / total * Mixture::kBlock), 1.0);
    }
  }
}

TEST(Mixture, IsAFunctionOfThePositionAlone) {
  const Mixture mixture({0.6, 0.3, 0.1});
  const std::uint64_t far = (std::uint64_t{1} << 50) + 17;
  const Mixture::Place place = mixture.at(far);
  EXPECT_EQ(place.source, mixture.at(far % Mixture::kBlock).source);
  EXPECT_EQ(place.ordinal,
            far / Mixture::kBlock * mixture.quota(place.source) + mixture.at(far % Mixture::kBlock).ordinal);
}

class MixedTokens : public testing::Test {
 protected:
  // Two sources whose tokens tell them apart: 0 … 999 and 30000 … 30199, ten tokens per sample.
  MixedTokens() {
    std::vector<std::uint16_t> other(201);
    std::iota(other.begin(), other.end(), std::uint16_t{30000});
    folder_.write_tokens("a.bin", test::counting(1001, 1001));
    folder_.write_tokens("b.bin", other);
    config_.tokens = {folder_.path("a.bin@0.75"), folder_.path("b*.bin@0.25")};
    config_.holdout = 0;
  }
  Data open() const { return open_data(config_, {.context = 10, .vocab = 50000}); }

  Folder folder_;
  DataConfig config_;
};

TEST_F(MixedTokens, EachSourceHasItsShareItsEpochsAndItsOrder) {
  const Data data = open();
  EXPECT_EQ(data.train->samples(), 120);
  expect_contains(data.summary, "2 sources");
  expect_contains(data.summary, "25%");
  const Sampler sampler(data.train, Order::shuffled, 3, 8);
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  for (std::int64_t p = 0; p < 800; ++p) {
    const std::int64_t sample = sampler.sample(p / 8, p % 8);
    (sample < 100 ? first : second).push_back(sample);
  }
  EXPECT_EQ(first.size(), 600U);
  EXPECT_EQ(second.size(), 200U);
  // Every epoch of a source is a permutation of it: six of the first, ten of the second.
  const auto permutations = [](const std::vector<std::int64_t>& order, std::int64_t from, std::int64_t size) {
    for (std::size_t epoch = 0; epoch * static_cast<std::size_t>(size) < order.size(); ++epoch) {
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(epoch) * size;
      std::vector<std::int64_t> seen(begin, begin + size);
      std::sort(seen.begin(), seen.end());
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], from + i);
    }
  };
  permutations(first, 0, 100);
  permutations(second, 100, 20);
  EXPECT_FALSE(std::equal(second.begin(), second.begin() + 20, second.begin() + 20));
}

TEST_F(MixedTokens, RowsAreTheSameHoweverTheBatchIsCutAndAfterARestart) {
  const Data data = open();
  const Sampler sampler(data.train, Order::shuffled, 5, 12);
  const Data reopened = open();
  const Sampler again(reopened.train, Order::shuffled, 5, 12);
  Batch whole;
  Batch part;
  sampler.fill(1234, {{0, 12}}, whole);
  for (std::int64_t first = 0; first < 12; first += 3) {
    again.fill(1234, {{first, 3}}, part);
    EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin() + first * 10));
  }
  EXPECT_EQ(std::count_if(whole.tokens.begin(), whole.tokens.end(), [](auto t) { return t >= 30000; }), 30);
}

TEST_F(MixedTokens, TailsOfAllSourcesAreHeldOut) {
  config_.holdout = 0.1;
  const Data data = open();
  ASSERT_NE(data.eval, nullptr);
  EXPECT_EQ(data.train->samples(), 90 + 18);
  EXPECT_EQ(data.eval->samples(), (100 + 20 - 1) / 10);
  Batch batch;
  Sampler(data.eval, Order::sequential, 1, 11).fill(0, {{0, 11}}, batch);
  EXPECT_EQ(batch.tokens.front(), 901);
  EXPECT_EQ(batch.tokens.back(), 30190);
}

TEST_F(MixedTokens, BadWeights) {
  const auto refused = [&] { return refusal([&] { open(); }); };
  config_.tokens = {folder_.path("a.bin@0.75"), folder_.path("b.bin")};
  expect_contains(refused(), "has no mixing weight and others have one");
  config_.tokens = {folder_.path("a.bin@1"), folder_.path("b.bin@1e-9")};
  expect_contains(refused(), "mixing weight 1e-09");
  config_.tokens = {folder_.path("a.bin@-1")};
  expect_contains(refused(), "must be a number above 0");
  config_.tokens = {folder_.path("a.bin@1"), folder_.path("b.bin@1")};
  config_.eval = config_.tokens;
  expect_contains(refused(), "eval: mixing weights have no use");
}

}  // namespace
}  // namespace trireme::data
