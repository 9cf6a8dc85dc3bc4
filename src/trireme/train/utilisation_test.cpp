#include "trireme/train/utilisation.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(Utilisation, IsAShareOfTheFastestProduct) {
  Utilisation u;
  EXPECT_EQ(u.of(50), 0);  // nothing was measured
  u.measured(100);
  u.measured(80);
  EXPECT_DOUBLE_EQ(u.of(50), 0.5);
  EXPECT_DOUBLE_EQ(u.of(100), 1);
  EXPECT_FALSE(u.outrun());
}

// The cores were busy while the product was measured: steps that outrun it are the measure for the next ones.
TEST(Utilisation, IsNeverAboveOne) {
  Utilisation u;
  u.measured(100);
  EXPECT_DOUBLE_EQ(u.of(400), 1);
  EXPECT_TRUE(u.outrun());
  EXPECT_DOUBLE_EQ(u.of(200), 0.5);
  EXPECT_EQ(u.peak(), 400);
  // Measured again, with the cores free.
  u.measured(500);
  EXPECT_FALSE(u.outrun());
  EXPECT_DOUBLE_EQ(u.of(400), 0.8);
}

// A product is measured again before a step is said to be faster: its last speed is the one that is outrun.
TEST(Utilisation, NamesTheProductThatWasOutrun) {
  Utilisation u;
  u.measured(100e9);
  u.measured(150e9);
  EXPECT_DOUBLE_EQ(u.of(400e9), 1);
  EXPECT_DOUBLE_EQ(u.product(), 150e9);
  EXPECT_EQ(u.outrun_text(7, 400e9).find("mfu: step 7 ran at 400.0 GFLOP/s, above the 150.0 measured"), 0U)
      << u.outrun_text(7, 400e9);
}

}  // namespace
}  // namespace trireme::train
