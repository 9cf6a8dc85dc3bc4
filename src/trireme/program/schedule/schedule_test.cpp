#include "trireme/program/schedule/schedule.h"

#include <gtest/gtest.h>

#include "support/folder.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/messages.h"
#include "trireme/program/schedule/pipedream.h"

namespace trireme::program {
namespace {

using test::refusal;

TEST(Schedule, TextReadsBack) {
  for (const char* name : {"sequential", "gpipe", "1f1b", "interleaved:3", "zero-bubble", "zero-bubble:auto",
                           "pipedream", "pipedream-2bw"}) {
    const Schedule schedule = make_schedule({.pipeline = parse_pipeline(name), .stages = 3, .micro_batches = 6});
    EXPECT_EQ(parse_schedule(to_text(schedule)), schedule) << name;
  }
}

TEST(Schedule, CommentsAndBlankLinesAreIgnoredAndLinesCounted) {
  ScheduleLines lines;
  const Schedule schedule = parse_schedule("# two stages\n\nF0 F1 B0 B1 U  # the first\n  F0 B0\tF1 B1 U\r\n", &lines);
  EXPECT_EQ(to_text(schedule), "F0 F1 B0 B1 U\nF0 B0 F1 B1 U\n");
  EXPECT_EQ(lines.stages, (std::vector<int>{3, 4}));
  EXPECT_EQ(schedule.micro_batches, 2);
  EXPECT_EQ(schedule.chunks, 1);
  EXPECT_FALSE(schedule.asynchronous());
}

TEST(Schedule, WhatCannotBeReadIsNamedByLineAndToken) {
  const auto refused = [](const char* text) { return refusal([&] { parse_schedule(text); }); };
  EXPECT_EQ(refused("F0 B0 U\nF0 G0 U"),
            "line 2: 'G0' is no action: those are F0, B0 and W0 of a micro-batch, F0.1 of its chunk 1, and U");
  EXPECT_EQ(refused("F0 F1000000"), "line 1: F1000000: numbers go up to 999999");
  EXPECT_EQ(refused("# nothing\n"), "the schedule has no stages: each is a line of actions, such as F0 B0 U");
  EXPECT_EQ(refused("fill\nF0\nsteady\nF0 B0 U\ndrain\n"), "the part 'drain' has 0 stages, and 'steady' has 1");
  EXPECT_EQ(refused("F0 B0 U\nsteady\nF0 B0 U\n"),
            "line 2: the part 'steady' comes twice, or follows stages without a part");
  EXPECT_EQ(refused("steady delayed\nF0 B0 U\n"), "'steady delayed' needs the parts 'fill' and 'drain'");
}

TEST(Schedule, StepsOfAnAsynchronousScheduleAreNumberedOn) {
  const Schedule schedule = pipedream_schedule(2, 3);
  EXPECT_EQ(to_text(schedule),
            "fill\nF0 F1 B0 U F2 B1 U\nF0 B0 U F1 B1 U F2 B2 U\n"
            "steady\nF0 B2 U F1 B0 U F2 B1 U\nF0 B0 U F1 B1 U F2 B2 U\n"
            "drain\nB2 U\n-\n");
  EXPECT_EQ(to_text(unrolled(schedule, 2)),
            "F0 F1 B0 U F2 B1 U F3 B2 U F4 B3 U F5 B4 U B5 U\n"
            "F0 B0 U F1 B1 U F2 B2 U F3 B3 U F4 B4 U F5 B5 U\n");
  EXPECT_EQ(to_text(unrolled(schedule, 1)), "F0 F1 B0 U F2 B1 U B2 U\nF0 B0 U F1 B1 U F2 B2 U\n");
}

TEST(Schedule, PipelinesHaveNames) {
  EXPECT_EQ(parse_pipeline("interleaved:4"), (PipelineName{PipelineName::Kind::interleaved, 4}));
  EXPECT_EQ(parse_pipeline("file:a/b.txt").path, "a/b.txt");
  test::expect_contains(refusal([] { parse_pipeline("1f1d"); }), "did you mean '1f1b'?");
  for (const char* bad : {"interleaved:", "interleaved:0", "interleaved:x", "interleaved:2x"})
    test::expect_contains(refusal([&] { parse_pipeline(bad); }), "interleaved:2");
  test::expect_contains(refusal([] { parse_pipeline("file:"); }), "'file:' is no pipeline");
  ScheduleRequest none;
  none.stages = 0;
  EXPECT_EQ(refusal([&] { make_schedule(none); }),
            "a pipeline has at least one stage and one micro-batch, not 0 and 1");
}

std::string text_of(const std::vector<Transfer>& transfers) {
  std::string text;
  for (const Transfer& t : transfers)
    text += fmt::format("{}{}{}.{}{}{}@{} ", t.send ? "→" : "←",
                        t.message.kind == StageMessage::Kind::activation ? "a" : "g", t.message.micro, t.message.chunk,
                        t.send ? ":" : "=", t.send ? t.message.to : t.message.from, t.action);
  return text;
}

TEST(StageMessages, FollowFromTheActions) {
  const Schedule schedule = one_f_one_b_schedule(3, 1);
  const auto all = transfers(schedule, schedule.stages);
  EXPECT_EQ(text_of(all[0]), "→a0.0:1@0 ←g0.0=1@1 ");
  EXPECT_EQ(text_of(all[1]), "←a0.0=0@0 →a0.0:2@0 ←g0.0=2@1 →g0.0:0@1 ");
  EXPECT_EQ(text_of(all[2]), "←a0.0=1@0 →g0.0:1@1 ");
}

// The last stage's chunk 0 is followed by stage 0's chunk 1, and gradients go the same way back.
TEST(StageMessages, WrapAroundTheChunks) {
  const Schedule schedule = interleaved_schedule(2, 1, 2);
  EXPECT_EQ(to_text(schedule), "F0 F0.1 B0.1 B0 U\nF0 F0.1 B0.1 B0 U\n");
  const auto all = transfers(schedule, schedule.stages);
  EXPECT_EQ(text_of(all[0]), "→a0.0:1@0 ←a0.0=1@1 →a0.1:1@1 ←g0.1=1@2 →g0.1:1@2 ←g0.0=1@3 ");
  EXPECT_EQ(text_of(all[1]), "←a0.0=0@0 →a0.0:0@0 ←a0.1=0@1 →g0.1:0@2 ←g0.1=0@3 →g0.0:0@3 ");
}

TEST(StageMessages, EverySendHasItsReceive) {
  for (const char* name : {"1f1b", "interleaved:3", "zero-bubble"})
    for (const int stages : {1, 2, 3, 5}) {
      const Schedule schedule = make_schedule({.pipeline = parse_pipeline(name), .stages = stages, .micro_batches = 5});
      std::vector<StageMessage> sent, received;
      const auto all = transfers(schedule, schedule.stages);
      for (std::size_t stage = 0; stage < all.size(); ++stage)
        for (const Transfer& t : all[stage]) {
          (t.send ? sent : received).push_back(t.message);
          EXPECT_EQ(t.send ? t.message.from : t.message.to, static_cast<int>(stage));
          const Action& action = schedule.stages[stage][t.action];
          EXPECT_EQ(t.send ? sender(t.message) : receiver(schedule, t.message), action);
        }
      const std::size_t parts = static_cast<std::size_t>(stages) * schedule.chunks;
      EXPECT_EQ(sent.size(), stages == 1 ? 0 : 2 * 5 * (parts - 1)) << name << stages;
      EXPECT_TRUE(std::is_permutation(sent.begin(), sent.end(), received.begin(), received.end())) << name << stages;
    }
}

}  // namespace
}  // namespace trireme::program
