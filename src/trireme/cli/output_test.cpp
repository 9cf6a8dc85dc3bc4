#include "trireme/cli/output.h"

#include <gtest/gtest.h>

#include "trireme/cli/live_line.h"

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

// What matters stays on a narrow terminal: the bar gives way first, then the least of the facts.
TEST(Output, ProgressFitsTheTerminal) {
  const std::vector<Fact> facts = {{"loss 2.010", 9}, {"20.4k tok/s", 3}, {"14.0 MiB", 1}, {"23 s left", 4}};
  const auto line = [&](int columns) { return progress_line("step 150/300", 0.5, facts, columns); };
  EXPECT_EQ(line(0), "step 150/300 ━━━━━━━━━━━━──────────── loss 2.010 · 20.4k tok/s · 14.0 MiB · 23 s left");
  EXPECT_EQ(line(100), line(0));
  EXPECT_EQ(line(80), "step 150/300 ━━━━━━━━━╸───────── loss 2.010 · 20.4k tok/s · 14.0 MiB · 23 s left");
  EXPECT_EQ(line(60), "step 150/300 loss 2.010 · 20.4k tok/s · 14.0 MiB · 23 s left");
  EXPECT_EQ(line(40), "step 150/300 ━━── loss 2.010 · 23 s left");
  EXPECT_EQ(line(30), "step 150/300 ━━━─── loss 2.010");
  EXPECT_EQ(line(20), "step 150/300 loss 2…");
  for (int columns = 1; columns < 100; ++columns) EXPECT_LE(columns_of(line(columns)), columns);
}

TEST(Output, APerplexityWithoutMeaningHasNoDigits) {
  EXPECT_EQ(perplexity_text(1.5, 2), "4.48");
  EXPECT_EQ(perplexity_text(85.5, 2), "over 10^37");
  EXPECT_EQ(perplexity_text(1e4, 3), "over 10^4342");
  EXPECT_TRUE(is_telling(4.5));
  EXPECT_FALSE(is_telling(1e37));
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
