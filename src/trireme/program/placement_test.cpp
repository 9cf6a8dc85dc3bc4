#include "trireme/program/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "trireme/core/rng.h"
#include "trireme/program/program.h"

namespace trireme::program {
namespace {

using Life = Placement::Life;

// Some live long, some lie on pages.
std::vector<Life> random_lives(std::uint64_t seed, std::size_t instructions, std::size_t count) {
  SplitMix random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.next() % n); };
  std::vector<Life> lives;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = below(instructions);
    const std::size_t life = below(5) == 0 ? below(instructions) : below(6);
    const std::size_t alignment = below(8) == 0 ? kPage : kAlignment;
    lives.push_back({static_cast<std::int32_t>(first),
                     static_cast<std::int32_t>(std::min(instructions - 1, first + life)),
                     aligned(1 + below(below(2) == 0 ? 300 : 20000), alignment), alignment});
  }
  return lives;
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
  return order;
}

// The rule itself: of offset 0 and the ends of those placed before, the lowest at which nothing is in the way.
std::vector<std::size_t> lowest_offsets(const std::vector<Life>& lives, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> offsets(lives.size(), 0);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Life& life = lives[order[k]];
    std::vector<std::size_t> candidates{0};
    for (std::size_t p = 0; p < k; ++p)
      candidates.push_back(aligned(offsets[order[p]] + lives[order[p]].size, life.alignment));
    std::sort(candidates.begin(), candidates.end());
    offsets[order[k]] = *std::find_if(candidates.begin(), candidates.end(), [&](std::size_t offset) {
      return std::none_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), [&](std::size_t p) {
        const Life& other = lives[p];
        return other.first <= life.last && life.first <= other.last && offset < offsets[p] + other.size &&
               offsets[p] < offset + life.size;
      });
    });
  }
  return offsets;
}

TEST(Placement, EachGoesToTheLowestFreeOffset) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix random(seed * 31);
    const std::vector<Life> lives = random_lives(seed, 1 + random.next() % 150, 1 + random.next() % 200);
    const std::vector<std::size_t> order = shuffled(lives.size(), seed);
    const std::vector<std::size_t> expected = lowest_offsets(lives, order);
    std::size_t end = 0;
    for (std::size_t i = 0; i < lives.size(); ++i) end = std::max(end, expected[i] + lives[i].size);
    // From a window for every instruction to one for all of them.
    for (const std::size_t per_window : {1, 3, 20, 1000}) {
      Placement placement(lives, per_window);
      EXPECT_EQ(placement.run(order), end) << per_window;
      EXPECT_EQ(placement.offsets(), expected) << per_window;
    }
  }
}

TEST(Placement, ForgetsTheLastRun) {
  const std::vector<Life> lives = random_lives(7, 50, 100);
  Placement placement(lives, 10);
  const std::vector<std::size_t> order = shuffled(lives.size(), 1);
  const auto end = placement.run(order);
  const std::vector<std::size_t> offsets = placement.offsets();
  placement.run(shuffled(lives.size(), 2));
  EXPECT_EQ(placement.run(order), end);
  EXPECT_EQ(placement.offsets(), offsets);
}

TEST(Placement, GivesUpBeyondTheLimit) {
  const std::vector<Life> lives = random_lives(7, 50, 100);
  Placement placement(lives, 10);
  const std::vector<std::size_t> order = shuffled(lives.size(), 1);
  const std::size_t end = placement.run(order).value();
  EXPECT_EQ(placement.run(order, end), end);
  EXPECT_FALSE(placement.run(order, end - 1).has_value());
}

}  // namespace
}  // namespace trireme::program
