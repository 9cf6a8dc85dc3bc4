#include "trireme/planner/stage_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "trireme/core/rng.h"

namespace trireme::planner {
namespace {

double largest(const std::vector<double>& seconds, const std::vector<std::int64_t>& layers) {
  double worst = 0;
  std::size_t at = 0;
  for (const std::int64_t count : layers) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += seconds[at++];
    worst = std::max(worst, sum);
  }
  return worst;
}

// Every cut there is.
double exhaustive(const std::vector<double>& seconds, std::size_t parts,
                  const std::function<bool(std::size_t, std::size_t, std::size_t)>& fits) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::int64_t> layers;
  const std::function<void(std::size_t)> go = [&](std::size_t at) {
    if (layers.size() + 1 == parts) {
      if (at >= seconds.size() || !fits(parts - 1, at, seconds.size())) return;
      layers.push_back(static_cast<std::int64_t>(seconds.size() - at));
      best = std::min(best, largest(seconds, layers));
      layers.pop_back();
      return;
    }
    for (std::size_t end = at + 1; end < seconds.size(); ++end) {
      if (!fits(layers.size(), at, end)) continue;
      layers.push_back(static_cast<std::int64_t>(end - at));
      go(end);
      layers.pop_back();
    }
  };
  go(0);
  return best;
}

TEST(StageCut, UnequalLayersAreSharedByTime) {
  EXPECT_EQ(balanced_parts({1, 1, 1, 3}, 2), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(balanced_parts({1, 1, 1, 1}, 4), (std::vector<std::int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(balanced_parts({1, 1, 1}, 2), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(balanced_parts({1, 1}, 3).empty());
}

TEST(StageCut, EqualsTryingAllCutsWithAndWithoutALimit) {
  SplitMix random(7);
  for (int problem = 0; problem < 60; ++problem) {
    std::vector<double> seconds, bytes;
    const auto count = static_cast<std::size_t>(3 + random.unit() * 7);
    for (std::size_t i = 0; i < count; ++i) {
      seconds.push_back(1 + random.unit() * 9);
      bytes.push_back(1 + random.unit() * 9);
    }
    const auto parts = static_cast<int>(1 + random.unit() * 4);
    const double room = 10 + random.unit() * 40;
    // A stage near the front holds more micro-batches.
    const auto fits = [&](std::size_t part, std::size_t first, std::size_t last) {
      double sum = 0;
      for (std::size_t i = first; i < last; ++i) sum += bytes[i] * (parts - static_cast<double>(part));
      return problem % 2 == 0 || sum <= room;
    };
    const std::vector<std::int64_t> cut = balanced_parts(seconds, parts, fits);
    const double best = exhaustive(seconds, static_cast<std::size_t>(parts), fits);
    if (cut.empty())
      EXPECT_EQ(best, std::numeric_limits<double>::infinity());
    else
      EXPECT_NEAR(largest(seconds, cut), best, 1e-9);
  }
}

}  // namespace
}  // namespace trireme::planner
