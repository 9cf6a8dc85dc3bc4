// tests/golden/schedule: options that name a generated schedule, or a schedule's own text, which is checked.
#include "support/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/core/text.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/messages.h"
#include "trireme/program/schedule/picture.h"

namespace trireme::program {
namespace {

using testing::Golden;
using testing::GoldenOptions;
using testing::take;

// "send F0 → 1", "receive B0.1 ← 0": the action is the sender's.
std::string message_text(const Transfer& t) {
  const std::string action = to_text(sender(t.message));
  return t.send ? fmt::format("send {} → {}", action, t.message.to)
                : fmt::format("receive {} ← {}", action, t.message.from);
}

// Options become blank lines, so that the numbers of lines stay.
Schedule given(const std::string& text) {
  std::string rest;
  for (const std::string& line : split(text, '\n')) rest += (line.starts_with("//") ? "" : line) + "\n";
  ScheduleLines lines;
  Schedule schedule = parse_schedule(rest, &lines);
  check_schedule(schedule, lines);
  return schedule;
}

std::string described(const Schedule& schedule, bool messages) {
  const Schedule all = unrolled(schedule, 2);
  std::string out = to_text(schedule) + "\n";
  out += picture(all, time_schedule(all), {.width = 160, .micro_batches = schedule.micro_batches}) + "\n";
  if (schedule.asynchronous())
    out += fmt::format("steady bubble {:.6f}, versions {}\n", steady_state(schedule).bubble,
                       fmt::join(weight_versions(schedule), " "));
  else
    out += fmt::format("bubble {:.6f}\n", time_schedule(schedule).bubble());
  out += fmt::format("held {}\n", fmt::join(held(schedule), " "));
  if (!messages) return out;
  const auto transferred = transfers(schedule, schedule.stages);
  for (std::size_t stage = 0; stage < transferred.size(); ++stage) {
    out += fmt::format("\nstage {}\n", stage);
    for (const Transfer& t : transferred[stage]) out += "  " + message_text(t) + "\n";
  }
  return out;
}

class ScheduleGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(ScheduleGolden, Matches) {
  testing::check_golden(GetParam(), [&](const std::string& text, GoldenOptions options) {
    const std::string pipeline = take(options, "pipeline", "");
    const bool messages = take(options, "messages", "false") == "true";
    if (pipeline.empty()) return described(given(text), messages);
    ScheduleRequest request{.pipeline = parse_pipeline(pipeline),
                            .stages = std::stoi(take(options, "stages", "1")),
                            .micro_batches = std::stoi(take(options, "micro_batches", "1"))};
    if (const std::string limit = take(options, "max_held", ""); !limit.empty()) request.max_held = {std::stoi(limit)};
    EXPECT_TRUE(options.empty()) << "unknown option " << options.begin()->first;
    const Schedule schedule = make_schedule(request);
    check_schedule(schedule);
    return described(schedule, messages);
  });
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleGolden, ::testing::ValuesIn(testing::goldens("schedule")),
                         [](const ::testing::TestParamInfo<Golden>& golden) { return golden.param.name; });

}  // namespace
}  // namespace trireme::program
