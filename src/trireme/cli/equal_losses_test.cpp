#include "trireme/cli/equal_losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme::cli {
namespace {

TEST(EqualLosses, TheLargestDifferenceCounts) {
  const std::vector<double> a = {3, 2, 1};
  EXPECT_EQ(largest_difference(a, a), 0);
  EXPECT_EQ(largest_difference(a, std::vector<double>{3, 2.5}), 0.5);
  EXPECT_NE(equal_text(1e-6, 1e-4).find("1e-06 ✓"), std::string::npos);
  EXPECT_NE(equal_text(0.5, 1e-4).find("✗"), std::string::npos);
}

// A replay that goes wrong, or compares nothing, gets no tick.
TEST(EqualLosses, WhatIsNoNumberIsNotEqual) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> sound = {3, 2, 1};
  for (std::size_t at = 0; at < sound.size(); ++at) {
    std::vector<double> bad = sound;
    bad[at] = nan;
    for (const double difference : {largest_difference(sound, bad), largest_difference(bad, sound)}) {
      EXPECT_TRUE(std::isnan(difference));
      EXPECT_EQ(equal_text(difference, 1e-4).find("✓"), std::string::npos);
    }
  }
  EXPECT_EQ(equal_text(largest_difference(sound, {}), 1e-4).find("✓"), std::string::npos);
}

}  // namespace
}  // namespace trireme::cli
