// The laws of docs/pipelines.md, for every number of stages up to 16, of micro-batches up to 64 and of chunks up to 4.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/folder.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/pipedream.h"
#include "trireme/program/schedule/timing.h"
#include "trireme/program/schedule/zero_bubble.h"

namespace trireme::program {
namespace {

constexpr int kStages = 16;
constexpr int kMicroBatches = 64;
constexpr int kChunks = 4;

// For all p and m, until a failure: the rest would say the same.
template <class Test>
void for_all(Test test) {
  for (int p = 1; p <= kStages; ++p)
    for (int m = 1; m <= kMicroBatches; ++m) {
      test(p, m);
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "with " << p << " stages and " << m << " micro-batches";
        return;
      }
    }
}

// Idle time is exactly idle/whole of makespan × stages. Unit costs are whole numbers, so this is exact.
void expect_bubble(const Schedule& schedule, int idle, int whole) {
  check_schedule(schedule);
  const ScheduleTiming timing = time_schedule(schedule);
  const double all = timing.makespan * schedule.stage_count();
  EXPECT_EQ((all - timing.busy) * whole, all * idle) << "a bubble of " << timing.bubble();
  EXPECT_DOUBLE_EQ(timing.bubble(), static_cast<double>(idle) / whole);
}

template <class Formula>
void expect_held(const Schedule& schedule, Formula formula) {
  std::vector<int> expected(schedule.stages.size());
  for (int i = 0; i < schedule.stage_count(); ++i) expected[static_cast<std::size_t>(i)] = formula(i);
  EXPECT_EQ(held(schedule), expected);
}

std::pair<int, int> sends(const Schedule& schedule) {
  const SendsInFlight limits = sends_in_flight(schedule);
  return {limits.activations, limits.gradients};
}

// A stage that starts a forward, or a backward, only when the message before its last one has arrived loses no time.
TEST(PipelineLaws, TwoMessagesOfAKindOnTheirWayAreEnough) {
  for (const int p : {2, 3, 5, 8, 16})
    for (const int m : {1, 2, 3, 7, 8, 32})
      for (const char* name :
           {"sequential", "gpipe", "1f1b", "zero-bubble", "zero-bubble:auto", "interleaved:2", "interleaved:3"})
        EXPECT_EQ(sends(make_schedule({.pipeline = parse_pipeline(name), .stages = p, .micro_batches = m})),
                  (std::pair{1, 1}))
            << name << " with " << p << " stages and " << m << " micro-batches";
}

// A first stage that makes all its forwards before its first backward, and a last one that alternates: with two of
// each on their way the one would wait for the other for ever.
TEST(PipelineLaws, SchedulesOfOnesOwnHaveAsManyMessagesOnTheirWayAsTheyNeed) {
  for (const int p : {2, 3, 4})
    for (const int m : {8, 12}) {
      Schedule schedule = gpipe_schedule(p, m);
      schedule.stages.back() = one_f_one_b_schedule(p, m).stages.back();
      check_schedule(schedule);
      const auto [activations, gradients] = sends(schedule);
      EXPECT_GE(activations, 1) << p << " stages, " << m << " micro-batches";
      EXPECT_GT(gradients, 1) << p << " stages, " << m << " micro-batches";
      EXPECT_LE(gradients, m) << p << " stages, " << m << " micro-batches";
    }
}

TEST(PipelineLaws, Sequential) {
  for_all([](int p, int m) {
    const Schedule schedule = sequential_schedule(p, m);
    expect_bubble(schedule, p - 1, p);
    expect_held(schedule, [](int) { return 1; });
  });
}

TEST(PipelineLaws, GPipe) {
  for_all([](int p, int m) {
    const Schedule schedule = gpipe_schedule(p, m);
    expect_bubble(schedule, p - 1, m + p - 1);
    expect_held(schedule, [&](int) { return m; });
  });
}

TEST(PipelineLaws, OneForwardOneBackward) {
  for_all([](int p, int m) {
    const Schedule schedule = one_f_one_b_schedule(p, m);
    expect_bubble(schedule, p - 1, m + p - 1);
    expect_held(schedule, [&](int i) { return std::min(m, p - i); });
  });
}

TEST(PipelineLaws, Interleaved) {
  for_all([](int p, int m) {
    for (int v = 1; v <= kChunks; ++v) {
      const Schedule schedule = interleaved_schedule(p, m, v);
      const auto chunks = [&](int i) { return std::min(m * v, 2 * (p - i - 1) + (v - 1) * p + 1); };
      if (m % p == 0) {
        expect_bubble(schedule, p - 1, v * m + p - 1);
        expect_held(schedule, chunks);
      } else {
        check_schedule(schedule);
        const std::vector<int> holds = held(schedule);
        for (int i = 0; i < p; ++i) EXPECT_LE(holds[static_cast<std::size_t>(i)], chunks(i));
      }
    }
  });
}

TEST(PipelineLaws, ZeroBubble) {
  for_all([](int p, int m) {
    const Schedule schedule = zero_bubble_schedule(p, m);
    check_schedule(schedule);
    if (m >= p) expect_bubble(schedule, p - 1, 3 * m + p - 1);
    expect_held(schedule, [&](int) { return std::min(m, p); });
  });
}

// With room for 2p − 1 micro-batches no stage is idle between its first and its last action (ZB-H2).
TEST(PipelineLaws, ZeroBubbleAutoUsesTheMemoryThereIs) {
  for_all([](int p, int m) {
    if (m < 2 * p - 1 || (m > 2 * p + 4 && m != kMicroBatches)) return;
    const Schedule schedule = zero_bubble_auto_schedule(p, m, {2 * p - 1});
    check_schedule(schedule);
    const ScheduleTiming timing = time_schedule(schedule);
    EXPECT_EQ(timing.makespan, 3 * m + p - 1);
    EXPECT_EQ(timing.longest_stage(), 3 * m);
    for (const int h : held(schedule)) EXPECT_LE(h, 2 * p - 1);
  });
}

TEST(PipelineLaws, ZeroBubbleAutoKeepsItsLimitAndIsNeverWorse) {
  const std::vector<ScheduleCosts> all_costs = {
      {}, {.stages = {{2, 3, 1}}}, {.stages = {{1, 1, 3}}, .latency = 0.5}, {.stages = {{3, 4, 2}}}};
  for (const ScheduleCosts& costs : all_costs)
    for (const int p : {1, 2, 3, 4, 7, 8})
      for (const int m : {1, 2, 3, 5, 8, 16, 31}) {
        double before = std::numeric_limits<double>::infinity();
        for (int limit = 1; limit <= 2 * p + 1; ++limit) {
          const Schedule schedule = zero_bubble_auto_schedule(p, m, {limit}, costs);
          check_schedule(schedule);
          for (const int h : held(schedule)) ASSERT_LE(h, limit);
          const double makespan = time_schedule(schedule, costs).makespan;
          if (limit >= p) {
            ASSERT_LE(makespan, time_schedule(zero_bubble_schedule(p, m), costs).makespan);
          }
          ASSERT_LE(makespan, before) << "more room made it slower: " << p << " stages, " << m << " micro-batches, "
                                      << limit << " held";
          before = makespan;
        }
      }
}

TEST(PipelineLaws, ZeroBubbleAutoTakesLimitsByStage) {
  const std::vector<int> limits = {2, 6, 1, 3};
  const Schedule schedule = zero_bubble_auto_schedule(4, 12, limits);
  check_schedule(schedule);
  const std::vector<int> holds = held(schedule);
  for (std::size_t i = 0; i < limits.size(); ++i) EXPECT_LE(holds[i], limits[i]) << i;
  EXPECT_EQ(test::refusal([] {
              zero_bubble_auto_schedule(2, 2, {1, 0});
            }),
            "zero-bubble:auto needs room for at least 1 micro-batch on stage 1, not 0");
}

// No stage is idle from its first backward to its last forward, and a further step costs its work alone.
void expect_no_idle_time(const Schedule& schedule, int p, int m) {
  const SteadyState steady = steady_state(schedule);
  EXPECT_EQ(steady.period, 3 * m);
  EXPECT_EQ(steady.bubble, 0);
  const Schedule all = unrolled(schedule, 3);
  const ScheduleTiming timing = time_schedule(all);
  for (std::size_t i = 0; i < static_cast<std::size_t>(p); ++i) {
    const std::vector<Action>& actions = all.stages[i];
    const auto is = [](Action::Kind kind) { return [kind](const Action& a) { return a.kind == kind; }; };
    const auto from = std::find_if(actions.begin(), actions.end(), is(Action::Kind::backward)) - actions.begin();
    const auto to = std::find_if(actions.rbegin(), actions.rend(), is(Action::Kind::forward)).base() - actions.begin();
    for (auto a = from + 1; a < to; ++a)
      EXPECT_EQ(timing.stages[i][static_cast<std::size_t>(a)].start,
                timing.stages[i][static_cast<std::size_t>(a - 1)].finish);
  }
}

TEST(PipelineLaws, PipeDream) {
  for_all([](int p, int m) {
    const Schedule schedule = pipedream_schedule(p, m);
    if (m % 7 == 1 || m <= p) check_schedule(schedule);
    for (const std::vector<Action>& actions : schedule.stages)
      EXPECT_EQ(std::count(actions.begin(), actions.end(), Action{Action::Kind::update}), m);
    expect_held(schedule, [&](int i) { return std::min(m, p - i); });
    if (m < p) return;
    expect_no_idle_time(schedule, p, m);
    std::vector<int> versions(static_cast<std::size_t>(p));
    std::iota(versions.rbegin(), versions.rend(), 1);  // p − i at stage i
    EXPECT_EQ(weight_versions(schedule), versions);
  });
}

TEST(PipelineLaws, PipeDream2BW) {
  for_all([](int p, int m) {
    if (m < p) return;
    const Schedule schedule = pipedream_2bw_schedule(p, m);
    if (m % 7 == 1 || m <= p + 1) check_schedule(schedule);
    for (const std::vector<Action>& actions : schedule.stages)
      EXPECT_EQ(std::count(actions.begin(), actions.end(), Action{Action::Kind::update}), 1);
    expect_held(schedule, [&](int i) { return p - i; });
    expect_no_idle_time(schedule, p, m);
    EXPECT_EQ(weight_versions(schedule), std::vector<int>(static_cast<std::size_t>(p), 2));
  });
  EXPECT_EQ(test::refusal([] { pipedream_2bw_schedule(4, 3); }),
            "pipedream-2bw needs at least as many micro-batches as stages, and has 3 of 4; the least is 4");
}

// A stage that is slower than the others is not idle once the pipeline is full, and sets the pace.
TEST(PipelineLaws, TheSlowestStageSetsThePace) {
  ScheduleCosts costs{.stages = std::vector<ActionCost>(4)};
  costs.stages[2] = {2, 2, 2, 0};
  const ScheduleTiming timing = time_schedule(one_f_one_b_schedule(4, 32), costs);
  // Two forwards before it, two whole backwards after it, and once it waits for the first backward of the last stage.
  EXPECT_EQ(timing.makespan, 2 + 1 + 32 * 6 + 4);
  EXPECT_EQ(timing.busy, 32 * (3 + 3 + 6 + 3));
}

// A message that takes time delays what waits for it: once down and once up through three hops.
TEST(PipelineLaws, MessagesTakeTime) {
  const double without = time_schedule(gpipe_schedule(4, 8)).makespan;
  EXPECT_EQ(time_schedule(gpipe_schedule(4, 8), {.latency = 0.25}).makespan, without + 6 * 0.25);
}

}  // namespace
}  // namespace trireme::program
