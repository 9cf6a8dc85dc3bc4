#include "trireme/cli/output.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(Output, LinesAreCutToTheTerminal) {
  EXPECT_EQ(fitted("step 12/300", 80), "step 12/300");
  EXPECT_EQ(fitted("step 12/300", 11), "step 12/300");
  EXPECT_EQ(fitted("step 12/300", 10), "step 12/3…");
  EXPECT_EQ(fitted("━━━━ loss", 4), "━━━…");
  EXPECT_EQ(fitted("━━━━", 4), "━━━━");
  EXPECT_EQ(fitted("ab", 1), "…");
  EXPECT_EQ(fitted("anything", 0), "anything");  // no terminal
  EXPECT_EQ(fitted("", 5), "");
}

// A full disk stands in for a reader that is gone.
TEST(Output, AClosedOutputIsNoError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  say(full, "{} steps\n", 3);
  EXPECT_EQ(std::ferror(full), 0);
  std::fclose(full);
}

}  // namespace
}  // namespace trireme::cli
