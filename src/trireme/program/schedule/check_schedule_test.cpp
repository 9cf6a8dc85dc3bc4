#include "trireme/program/schedule/check_schedule.h"

#include <gtest/gtest.h>

#include "support/folder.h"
#include "trireme/program/schedule/generate.h"

namespace trireme::program {
namespace {

std::string refused(const std::string& text) {
  return test::refusal([&] {
    ScheduleLines lines;
    const Schedule schedule = parse_schedule(text, &lines);
    check_schedule(schedule, lines);
  });
}

TEST(CheckSchedule, NamesStageLineAndAction) {
  EXPECT_EQ(refused("# two stages\nF0 B0 U\nB0 F0 U\n"), "stage 1 (line 3): B0 comes before F0");
  EXPECT_EQ(refused("F0 B0 W0 U\nF0 W0 B0 U\n"), "stage 1 (line 2): W0 comes before B0");
  EXPECT_EQ(refused("F0 B0 F1 B1 U\nF0 B0 F1 U\n"), "stage 1 (line 2): B1 is missing");
  EXPECT_EQ(refused("F0 B0 F1 B1 U\nF0 B0 U\n"), "stage 1 (line 2): F1 is missing");
  EXPECT_EQ(refused("F0 B0 B0 U\n"), "stage 0 (line 1): B0 comes twice");
  EXPECT_EQ(refused("F0 B0\n"), "stage 0 (line 1): U is missing");
  EXPECT_EQ(refused("F0 U B0\n"), "stage 0 (line 1): U comes before B0");
  EXPECT_EQ(refused("F0 B0 U U\n"), "stage 0 (line 1): U comes twice");
  EXPECT_EQ(refused("F0 B0 U\nF0 B7 U\n"),
            "stage 0 (line 1): there are 3 actions, and 8 micro-batches of 1 chunk need as many forwards alone");
}

TEST(CheckSchedule, OneStageRunsItsChunksInOrder) {
  EXPECT_EQ(refused("F0.1 F0 B0.1 B0 U\n"), "stage 0 (line 1): F0.1 comes before F0");
  EXPECT_EQ(refused("F0 F0.1 B0 B0.1 U\n"), "stage 0 (line 1): B0 comes before B0.1");
  check_schedule(parse_schedule("F0 F0.1 B0.1 B0 U\n"));
}

TEST(CheckSchedule, StagesThatWaitForEachOtherAreNamed) {
  // Stage 0 wants the first gradient before it has given the second forward; stage 1 wants both forwards first.
  EXPECT_EQ(refused("F0 B0 F1 B1 U\nF0 F1 B0 B1 U\n"),
            "the schedule deadlocks: stage 0 (line 1) at B0 waits for B0 of stage 1; stage 1 (line 2) "
            "at F1 waits for F1 of stage 0");
  // Three stages, and the cycle is between the last two.
  EXPECT_EQ(refused("F0 F1 B0 B1 U\nF0 B0 F1 B1 U\nF0 F1 B0 B1 U\n"),
            "the schedule deadlocks: stage 1 (line 2) at B0 waits for B0 of stage 2; stage 2 (line 3) "
            "at F1 waits for F1 of stage 1");
}

// The data flow alone would allow it; a send that waits for its receive does not.
TEST(CheckSchedule, MessagesAreReceivedInTheOrderInWhichTheyAreSent) {
  EXPECT_EQ(
      refused("F0 F1 B1 B0 U\nF1 F0 B1 B0 U\n"),
      "stage 1 (line 2) at F1 waits for F1 of stage 0, which sends F0 first: messages are received in the order in "
      "which they are sent");
  EXPECT_EQ(
      refused("F0 F1 B0 B1 U\nF0 F1 B1 B0 U\n"),
      "stage 0 (line 1) at B0 waits for B0 of stage 1, which sends B1 first: messages are received in the order in "
      "which they are sent");
  check_schedule(parse_schedule("F0 F1 B1 B0 U\nF0 F1 B1 B0 U\n"));
}

TEST(CheckSchedule, AsynchronousStepsMustFitTogether) {
  const std::string fill = "fill\nF0 F1 B0 U\nF0 B0 U F1 B1 U\n";
  const std::string steady = "steady\nF0 B1 U F1 B0 U\nF0 B0 U F1 B1 U\n";
  const std::string drain = "drain\nB1 U\n-\n";
  check_schedule(parse_schedule(fill + steady + drain));
  EXPECT_EQ(refused(fill + steady + "drain\n-\n-\n"),
            "stage 0, with micro-batch k of step s as s × 2 + k, over 1 step and the drain: B1 is missing");
  EXPECT_EQ(refused(fill + "steady\nF0 F1 B0 U B1 U\nF0 B0 U F1 B1 U\n" + drain),
            "stage 0, with micro-batch k of step s as s × 2 + k, over 2 steps and the drain: B3 comes twice");
  EXPECT_EQ(refused("fill\nF0 F1 B0 U\nF0 B0 U\nsteady\nF0 B1 U F1 B0 U\nF1 B1 U F0 B0 U\ndrain\nB1 U\nF1 B1 U\n"),
            "stage 1 (drain, line 9): F1 begins a micro-batch, and the drain only completes what is in flight");
  EXPECT_EQ(refused("fill\nF0 F1 B0 U\nF0 B0 U\n" + steady + drain),
            "stage 1 (fill, line 3): F1 is missing: a step begins each of its micro-batches once on every stage");
  EXPECT_EQ(refused(fill + steady + "drain\nB1\n-\n"), "stage 0 (drain, line 8): no U follows the gradients of B1");
  // An update over two micro-batches on one stage, and over one on the other.
  EXPECT_EQ(refused(fill + "steady\nF0 B1 U F1 B0 U\nF0 B0 F1 B1 U\n" + drain),
            "stage 1 (fill, line 3): update 2 does not apply the gradients of the same micro-batches as on stage 0");
  // Fill and drain alone run; a steady step does not.
  EXPECT_EQ(refused(fill + "steady\nB1 U F0 B0 U F1\nF0 F1 B0 U B1 U\n" + drain),
            "the schedule deadlocks: stage 0 (steady, line 5) at B0 waits for B0 of stage 1; stage 1 "
            "(steady, line 6) at F1 waits for F1 of stage 0");
}

TEST(CheckSchedule, FilesAreReadCheckedAndNamed) {
  const test::Folder folder;
  const std::string good = folder.write("good.txt", "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n");
  const std::string bad = folder.write("bad.txt", "F0 B0 F1 B1 U\nF0 F1 B0 B1 U\n");
  const auto request = [](const std::string& path, int micro_batches) {
    ScheduleRequest wanted{.pipeline = parse_pipeline("file:" + path), .stages = 2, .micro_batches = micro_batches};
    wanted.given = read_schedule(path);
    return make_schedule(wanted);
  };
  EXPECT_EQ(request(good, 2), one_f_one_b_schedule(2, 2));
  EXPECT_EQ(test::refusal([&] { request(good, 4); }),
            good + ": it has 2 stages and 2 micro-batches, and 2 and 4 are wanted");
  test::expect_contains(test::refusal([&] { request(bad, 2); }), bad + ": the schedule deadlocks");
  test::expect_contains(test::refusal([&] { request(folder.path("none.txt"), 2); }), "none.txt: cannot be read");
}

}  // namespace
}  // namespace trireme::program
