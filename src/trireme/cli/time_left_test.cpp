#include "trireme/cli/time_left.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(TimeLeft, FollowsFromTheShareThatIsDone) {
  TimeLeft left;
  left.reached(0, 100);
  EXPECT_EQ(left.seconds(105), std::nullopt);
  left.reached(0.25, 110);
  EXPECT_DOUBLE_EQ(left.seconds(110).value(), 30);
  left.reached(0.5, 120);
  EXPECT_DOUBLE_EQ(left.seconds(120).value(), 20);
  left.reached(1, 140);
  EXPECT_EQ(left.seconds(141), std::nullopt);
}

// While one candidate compiles nothing new is known: the rest does not become longer with every look at the clock.
TEST(TimeLeft, CountsDownWhileNothingNewIsKnown) {
  TimeLeft left;
  left.reached(0, 0);
  left.reached(0.5, 5);
  double before = left.seconds(5).value();
  for (int now = 6; now < 10; ++now) {
    left.reached(0.5, now);  // the same again is nothing new
    const double seconds = left.seconds(now).value();
    EXPECT_DOUBLE_EQ(seconds, before - 1);
    before = seconds;
  }
  EXPECT_EQ(left.seconds(10), std::nullopt);
  EXPECT_EQ(left.seconds(20), std::nullopt);
}

// What earlier phases took is no part of the rate of this one.
TEST(TimeLeft, PhasesCountForThemselves) {
  TimeLeft left;
  left.reached(0, 0);
  left.reached(0.5, 50);
  left.reached(0, 100);
  EXPECT_EQ(left.seconds(101), std::nullopt);
  left.reached(0.2, 102);
  EXPECT_DOUBLE_EQ(left.seconds(102).value(), 8);
  // One that is already under way when it is first heard of.
  left.reached(0.1, 200);
  EXPECT_EQ(left.seconds(200), std::nullopt);
  left.reached(0.2, 210);
  EXPECT_DOUBLE_EQ(left.seconds(210).value(), 80);
}

// Work at an even pace ends when it was said to, from the first report on.
TEST(TimeLeft, IsRightAtAnEvenPace) {
  TimeLeft left;
  for (int done = 0; done < 20; ++done) {
    left.reached(done / 20.0, 3.0 * done);
    if (done > 0) {
      EXPECT_NEAR(3.0 * done + left.seconds(3.0 * done).value(), 60, 1e-9) << done;
    }
  }
}

}  // namespace
}  // namespace trireme::cli
