#include "trireme/cli/reduction.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

// A law is not said to be shown by numbers that say otherwise.
TEST(ReductionLaw, SaysWhatTheFiguresShow) {
  const ReductionFigures shown{.alone = 2, .locked = 9, .partial = 1, .lost = 0.3, .right = true};
  EXPECT_EQ(reduction_law(shown),
            "partial sums: 2.00 times as fast as one thread, and right; so is the lock, but slower ✓");
  ReductionFigures f = shown;
  f.lost = 0.0004;  // which is printed as 0.0%
  EXPECT_EQ(reduction_law(f),
            "a lock and partial sums give the sum of one thread ✓; this machine is too busy, or too small, to show "
            "that a race loses additions");
  f.partial = 2.2;
  EXPECT_EQ(reduction_law(f),
            "a lock and partial sums give the sum of one thread ✓; this machine is too busy, or too small, to show "
            "that a race loses additions and that partial sums are faster");
  f = shown;
  f.locked = 1.5;
  EXPECT_NE(reduction_law(f).find("to show that a lock makes threads take turns"), std::string::npos);
  f.right = false;
  EXPECT_EQ(reduction_law(f), "a lock and partial sums give the sum of one thread ✗");
}

}  // namespace
}  // namespace trireme::cli
