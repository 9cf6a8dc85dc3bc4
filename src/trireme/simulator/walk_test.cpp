#include "trireme/simulator/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/messages.h"
#include "trireme/simulator/simulate.h"

namespace trireme::simulator {
namespace {

using program::Action;
using program::Instruction;
using program::Program;

// Hand-made programs, whose instructions have the durations that a test gives them.
class Programs {
 public:
  std::size_t actor(int domain = -1, double ranks = 1, double threads = 1) {
    programs_.emplace_back();
    durations_.emplace_back();
    actors_.push_back(
        {"actor", &programs_.back(), domain < 0 ? static_cast<int>(programs_.size()) - 1 : domain, ranks, threads});
    return actors_.size() - 1;
  }
  // Returns the instruction. `waits` are instructions of the same actor.
  std::size_t add(std::size_t actor, Duration duration, std::int32_t stream = 0,
                  const std::vector<std::size_t>& waits = {}, Instruction::Kind kind = Instruction::Kind::launch) {
    Program& p = programs_[actor];
    Instruction i;
    i.kind = kind;
    i.stream = stream;
    i.records = static_cast<std::int32_t>(p.instructions.size());
    for (const std::size_t w : waits) i.waits.push_back(static_cast<std::int32_t>(w));
    p.instructions.push_back(i);
    durations_[actor].push_back(duration);
    return p.instructions.size() - 1;
  }
  std::size_t compute(std::size_t actor, double seconds, std::int32_t stream = 0,
                      const std::vector<std::size_t>& waits = {}) {
    return add(actor, {0, seconds, Resource::compute}, stream, waits);
  }
  void capture(std::size_t actor, std::size_t first, std::size_t last, const std::vector<std::size_t>& waits,
               const std::vector<std::size_t>& records) {
    program::CaptureRegion region{static_cast<std::int32_t>(first), static_cast<std::int32_t>(last), {}, {}};
    for (const std::size_t w : waits) region.waits.push_back(static_cast<std::int32_t>(w));
    for (const std::size_t r : records) region.records.push_back(static_cast<std::int32_t>(r));
    programs_[actor].capture_regions.push_back(region);
  }
  // Ranks on the link between nodes of the one that stands for `actor`.
  void on_link(std::size_t actor, std::size_t other, double ranks) { actors_[actor].link.push_back({other, ranks}); }
  void issue_each(std::size_t actor) { actors_[actor].captures = false; }
  void meet(const std::vector<Meeting::Member>& members) { meetings_.push_back({members}); }

  Timeline run(const std::vector<Domain>& domains = {}) {
    std::vector<Domain> all = domains;
    if (all.empty()) all.resize(actors_.size());
    return walk(actors_, meetings_, all, [&](std::size_t a, std::size_t i) { return durations_[a][i]; });
  }
  const std::vector<Actor>& actors() const { return actors_; }

 private:
  std::deque<Program> programs_;
  std::vector<std::vector<Duration>> durations_;
  std::vector<Actor> actors_;
  std::vector<Meeting> meetings_;
};

// A stage for each actor, whose actions are kernels and whose messages take no time.
double bubble_of(const program::Schedule& schedule, const program::ScheduleCosts& costs) {
  Programs programs;
  std::map<std::string, std::vector<Meeting::Member>> messages;
  const auto key = [](const program::StageMessage& m) {
    return fmt::format("{} {} {} {} {}", m.kind == program::StageMessage::Kind::activation, m.from, m.to, m.chunk,
                       m.micro);
  };
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    const std::size_t a = programs.actor();
    const std::vector<Action>& actions = schedule.stages[static_cast<std::size_t>(stage)];
    for (const Action& action : actions) {
      const bool split = std::count(actions.begin(), actions.end(),
                                    Action{Action::Kind::weight_gradient, action.micro, action.chunk}) > 0;
      std::vector<std::size_t> waits;
      if (const auto from = program::received_by(schedule, stage, action)) {
        const bool activation = from->kind == program::StageMessage::Kind::activation;
        waits.push_back(programs.add(a, {},
                                     activation ? program::kReceiveActivationStream : program::kReceiveGradientStream,
                                     {}, Instruction::Kind::receive));
        messages[key(*from)].push_back({a, waits.back()});
      }
      const program::ActionCost& cost = costs.of(static_cast<std::size_t>(stage));
      double seconds = cost.update;
      if (action.kind == Action::Kind::forward) seconds = cost.forward;
      if (action.kind == Action::Kind::backward) seconds = cost.backward + (split ? 0 : cost.weight_gradient);
      if (action.kind == Action::Kind::weight_gradient) seconds = cost.weight_gradient;
      const std::size_t kernel = programs.compute(a, seconds, 0, waits);
      if (const auto to = program::sent_by(schedule, stage, action)) {
        const bool activation = to->kind == program::StageMessage::Kind::activation;
        messages[key(*to)].push_back(
            {a, programs.add(a, {}, activation ? program::kSendActivationStream : program::kSendGradientStream,
                             {kernel}, Instruction::Kind::send)});
      }
    }
  }
  for (const auto& [name, members] : messages) {
    EXPECT_EQ(members.size(), 2U) << name;
    programs.meet(members);
  }
  const Timeline timeline = programs.run();
  EXPECT_NEAR(timeline.seconds, program::time_schedule(schedule, costs).makespan, 1e-9);
  double idle = 0;
  for (const TimeByKind& t : time_by_kind(programs.actors(), timeline, true)) {
    idle += t.bubble;
    EXPECT_EQ(t.exposed_communication, 0);
    EXPECT_NEAR(t.total(), timeline.seconds, 1e-9);
  }
  return idle / (timeline.seconds * schedule.stage_count());
}

TEST(Walk, PipelinesHaveTheBubblesOfTheirLaws) {
  for (const int p : {2, 3, 4, 8})
    for (const int m : {8, 16, 24}) {
      const auto schedule = [&](const char* name) {
        return program::make_schedule({.pipeline = program::parse_pipeline(name), .stages = p, .micro_batches = m});
      };
      const double plain = (p - 1.0) / (m + p - 1);
      EXPECT_NEAR(bubble_of(schedule("gpipe"), {}), plain, 1e-9) << p << " " << m;
      EXPECT_NEAR(bubble_of(schedule("1f1b"), {}), plain, 1e-9) << p << " " << m;
      EXPECT_NEAR(bubble_of(schedule("sequential"), {}), (p - 1.0) / p, 1e-9) << p << " " << m;
      EXPECT_NEAR(bubble_of(schedule("zero-bubble"), {}), (p - 1.0) / (3 * m + p - 1), 1e-9) << p << " " << m;
      if (m % p == 0) {
        EXPECT_NEAR(bubble_of(schedule("interleaved:2"), {}), (p - 1.0) / (2 * m + p - 1), 1e-9);
      }
    }
}

TEST(Walk, PipelinesOfUnequalStagesTakeWhatTheScheduleSays) {
  program::ScheduleCosts costs;
  costs.stages = {{1, 2, 1.5, 0.5}, {2, 1, 1, 0.25}, {0.5, 0.5, 3, 0}};
  for (const char* name : {"gpipe", "1f1b", "zero-bubble", "zero-bubble:auto"})
    bubble_of(program::make_schedule({.pipeline = program::parse_pipeline(name), .stages = 3, .micro_batches = 6}),
              costs);
}

TEST(Walk, AStreamRunsInOrderAndEventsAreWaitedFor) {
  Programs p;
  const std::size_t a = p.actor();
  const std::size_t one = p.compute(a, 2);
  const std::size_t two = p.add(a, {1, 3, Resource::inside}, 3, {one});
  const std::size_t three = p.compute(a, 4);
  const std::size_t four = p.compute(a, 1, 0, {two});
  const Timeline t = p.run();
  EXPECT_EQ(t.actors[a][two].begin, 2);
  EXPECT_EQ(t.actors[a][two].end, 6);
  EXPECT_EQ(t.actors[a][three].end, 6);
  EXPECT_EQ(t.actors[a][four].begin, 6);
  EXPECT_EQ(t.seconds, 7);
}

TEST(Walk, AMeetingStartsWithItsLastMember) {
  Programs p;
  const std::size_t a = p.actor();
  const std::size_t b = p.actor();
  p.compute(a, 1);
  p.compute(b, 5);
  const Duration transfer{1, 2, Resource::inside};
  p.meet({{a, p.add(a, transfer, 0, {}, Instruction::Kind::receive)},
          {b, p.add(b, transfer, 0, {}, Instruction::Kind::send)}});
  const Timeline t = p.run();
  EXPECT_EQ(t.actors[a][1].ready, 1);
  EXPECT_EQ(t.actors[a][1].begin, 5);
  EXPECT_EQ(t.actors[b][1].end, 8);
  const std::vector<TimeByKind> kinds = time_by_kind(p.actors(), t, false);
  EXPECT_EQ(kinds[a].compute, 1);
  EXPECT_EQ(kinds[a].waiting, 4);
  EXPECT_EQ(kinds[a].exposed_communication, 3);
  EXPECT_EQ(kinds[b].waiting, 0);
}

TEST(Walk, KernelsOfOneDeviceShareIt) {
  Programs p;
  const std::size_t a = p.actor();
  p.compute(a, 2);
  p.compute(a, 1, program::kGradientStream);
  const Timeline t = p.run();
  EXPECT_EQ(t.actors[a][1].end, 2);  // at half speed
  EXPECT_EQ(t.actors[a][0].end, 3);  // the rest of it alone
}

TEST(Walk, TransfersOverOneLinkShareItButForTheirLatency) {
  Programs p;
  const std::size_t a = p.actor();
  p.add(a, {1, 2, Resource::network}, 3);
  p.add(a, {1, 2, Resource::network}, 6);
  p.add(a, {1, 2, Resource::inside}, 7);
  const Timeline t = p.run();
  EXPECT_EQ(t.actors[a][0].end, 5);
  EXPECT_EQ(t.actors[a][1].end, 5);
  EXPECT_EQ(t.actors[a][2].end, 3);
}

TEST(Walk, ALinkBetweenNodesIsSharedByTheRanksThatUseItAtOnce) {
  Programs p;
  const std::size_t a = p.actor(), b = p.actor();
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    p.on_link(one, one, 1);
    p.on_link(one, other, 1);
  }
  p.add(a, {0, 2, Resource::network}, 3);
  p.add(a, {0, 2, Resource::inside}, 6);
  p.compute(b, 1);
  const std::size_t sent = p.add(b, {0, 2, Resource::network}, 3, {0});
  const Timeline t = p.run();
  EXPECT_EQ(t.actors[a][0].end, 3);     // alone for a second, then half of the link
  EXPECT_EQ(t.actors[a][1].end, 2);     // not over that link
  EXPECT_EQ(t.actors[b][sent].end, 4);  // alone from the third second on
}

// An actor stands for several ranks of a link: each in a group of its own, or all in one.
TEST(Walk, RanksOfOneActorShareTheirLinkButForThoseOfOneGroup) {
  const auto end = [](double per_link) {
    Programs p;
    const std::size_t a = p.actor();
    p.on_link(a, a, 4);
    p.add(a, {1, 2, Resource::network, 0, 0, per_link}, 3);
    return p.run().actors[a][0].end;
  };
  EXPECT_EQ(end(1), 9);
  EXPECT_EQ(end(2), 5);
  EXPECT_EQ(end(4), 3);
}

TEST(Walk, KernelsSlowDownWhileTheirDeviceCommunicates) {
  Programs p;
  const std::size_t a = p.actor();
  p.compute(a, 4);
  p.add(a, {0, 2, Resource::inside}, 3);
  const Timeline t = p.run({{.communication_slowdown = 2}});
  EXPECT_EQ(t.actors[a][1].end, 2);
  EXPECT_EQ(t.actors[a][0].end, 5);  // one of four in the first two seconds
}

TEST(Walk, RanksOfACpuShareItsCores) {
  Programs p;
  const std::size_t a = p.actor(0, 4, 1);  // four ranks of one thread each
  const std::size_t b = p.actor(0, 1, 2);
  p.compute(a, 3);
  p.add(b, {0.5, 0, Resource::none});
  const Timeline alone = p.run({{.cores = 2}});
  EXPECT_EQ(alone.seconds, 6);
  p.compute(b, 1);
  const Timeline t = p.run({{.cores = 2}});
  // From 0.5 on six threads share two cores: each gets a third.
  EXPECT_DOUBLE_EQ(t.actors[b][1].end, 3.5);
  EXPECT_DOUBLE_EQ(t.actors[a][0].end, 3.5 + 2 * (3 - 0.25 - 1));
  EXPECT_DOUBLE_EQ(p.run({{.cores = 8, .busy_slowdown = 2}}).actors[a][0].end, 3);
}

// A replay is one: it starts when the captured streams have done what is before it and what it waits for is there; its
// events and what follows on those streams come when all of it is done. Streams between ranks go on meanwhile.
TEST(Walk, ACaptureRegionStartsAndEndsAsAWhole) {
  Programs p;
  const std::size_t a = p.actor();
  const Duration one{1, 0, Resource::none};
  const Duration three{3, 0, Resource::none};
  const std::size_t copied = p.add(a, three, program::kLoadStream);                // 0 to 3
  const std::size_t sum = p.add(a, one, program::kCommStream);                     // 0 to 1
  const std::size_t early = p.add(a, one, 0);                                      // alone 0 to 1
  const std::size_t late = p.add(a, three, program::kGradientStream, {early});     // alone 1 to 4
  const std::size_t sent = p.add(a, one, program::kCommStream, {early});           // alone 1 to 2
  const std::size_t after = p.add(a, one, 0);                                      // alone 1 to 2
  const std::size_t unrelated = p.add(a, one, program::kReceiveActivationStream);  // 0 to 1
  p.capture(a, early, late + 1, {sum}, {early});
  const auto end = [&](std::size_t i) { return p.run().actors[a][i].end; };
  EXPECT_DOUBLE_EQ(end(copied), 3);
  EXPECT_DOUBLE_EQ(end(early), 4);  // after what was on the load stream
  EXPECT_DOUBLE_EQ(end(late), 7);
  EXPECT_DOUBLE_EQ(end(sent), 8);  // the event is recorded with the last of the replay
  EXPECT_DOUBLE_EQ(end(after), 8);
  EXPECT_DOUBLE_EQ(end(unrelated), 1);
  p.issue_each(a);
  EXPECT_DOUBLE_EQ(end(early), 1);
  EXPECT_DOUBLE_EQ(end(late), 4);
  EXPECT_DOUBLE_EQ(end(sent), 2);
  EXPECT_DOUBLE_EQ(end(after), 2);
}

// Whatever the durations: programs that have one order in which they can run always end, and not before their longest
// chain nor after the sum of all.
TEST(Walk, ProgramsWithoutADeadlockAlwaysEnd) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SplitMix random(seed);
    const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random.unit() * static_cast<double>(n)); };
    Programs p;
    const std::size_t actors = 1 + pick(5);
    for (std::size_t a = 0; a < actors; ++a) p.actor();
    std::vector<std::map<std::pair<std::size_t, std::int32_t>, double>> last(1);
    std::vector<std::vector<double>> ends(actors);
    double sum = 0, longest = 0;
    for (int step = 0; step < 60; ++step) {
      const Duration d{random.unit(), 0, Resource::none};
      const auto stream = static_cast<std::int32_t>(pick(3));
      std::vector<Meeting::Member> members;
      std::vector<std::size_t> who;
      for (std::size_t a = 0; a < actors; ++a)
        if (random.unit() < 0.4) who.push_back(a);
      double begin = 0;
      for (const std::size_t a : who) {
        std::vector<std::size_t> waits;
        if (!ends[a].empty() && random.unit() < 0.5) waits.push_back(pick(ends[a].size()));
        begin = std::max(begin, last[0][{a, stream}]);
        for (const std::size_t w : waits) begin = std::max(begin, ends[a][w]);
        members.push_back({a, p.add(a, d, stream, waits)});
      }
      for (const std::size_t a : who) {
        ends[a].push_back(begin + d.latency);
        last[0][{a, stream}] = begin + d.latency;
      }
      if (who.empty()) continue;
      sum += d.latency;
      longest = std::max(longest, begin + d.latency);
      p.meet(members);
    }
    const double seconds = p.run().seconds;
    EXPECT_NEAR(seconds, longest, 1e-9);
    EXPECT_LE(seconds, sum + 1e-9);
  }
}

TEST(Walk, ADeadlockIsAnErrorThatNamesAnInstruction) {
  Programs p;
  const std::size_t a = p.actor();
  const std::size_t b = p.actor();
  const Duration d{1, 0, Resource::none};
  const std::size_t a0 = p.add(a, d, 0, {}, Instruction::Kind::copy), a1 = p.add(a, d, 0, {}, Instruction::Kind::copy);
  const std::size_t b0 = p.add(b, d, 0, {}, Instruction::Kind::copy), b1 = p.add(b, d, 0, {}, Instruction::Kind::copy);
  p.meet({{a, a0}, {b, b1}});
  p.meet({{a, a1}, {b, b0}});
  EXPECT_THROW(p.run(), Error);
}

// What comes does not slow down what goes.
TEST(Walk, DirectionsOfALinkDoNotShareIt) {
  Programs p;
  const std::size_t a = p.actor(), b = p.actor();
  const Duration message{0, 1, Resource::inside};
  using Kind = Instruction::Kind;
  p.meet({{a, p.add(a, message, 6, {}, Kind::send)}, {b, p.add(b, message, 7, {}, Kind::receive)}});
  p.meet({{a, p.add(a, message, 9, {}, Kind::receive)}, {b, p.add(b, message, 8, {}, Kind::send)}});
  EXPECT_DOUBLE_EQ(p.run().seconds, 1);
  p.meet({{a, p.add(a, message, 3, {}, Kind::collective)}, {b, p.add(b, message, 3, {}, Kind::collective)}});
  EXPECT_DOUBLE_EQ(p.run().seconds, 2);
}

// A stream of a CPU is a thread: it goes on a little after what it waited for.
TEST(Walk, AStreamThatSleptIsWoken) {
  Programs p;
  const std::size_t a = p.actor(0);
  const std::size_t first = p.compute(a, 1);
  const std::size_t other = p.compute(a, 1, 1, {first});
  const std::size_t next = p.compute(a, 1);
  const std::size_t last = p.compute(a, 1, 0, {other});
  const Timeline t = p.run({{.cores = 4, .wake = 0.1, .busy_wake = 1}});
  EXPECT_DOUBLE_EQ(t.actors[a][first].end, 1);
  EXPECT_DOUBLE_EQ(t.actors[a][next].end, 2);
  EXPECT_DOUBLE_EQ(t.actors[a][other].end, 2.1);
  EXPECT_DOUBLE_EQ(t.actors[a][last].end, 3.2);
}

// But not later than it slept.
TEST(Walk, AShortSleepIsALightOne) {
  Programs p;
  const std::size_t a = p.actor(0);
  const std::size_t first = p.compute(a, 1);
  const std::size_t other = p.add(a, {0.25, 0, Resource::none}, 1, {first});
  const std::size_t last = p.compute(a, 1, 0, {other});
  const Timeline t = p.run({{.cores = 4, .wake = 0.5}});
  EXPECT_DOUBLE_EQ(t.actors[a][other].end, 1.75);  // it slept for 1
  EXPECT_DOUBLE_EQ(t.actors[a][last].begin, 1.75);
  EXPECT_DOUBLE_EQ(t.actors[a][last].end, 3.25);  // 0.75, more than 0.5
}

// Where all cores compute, what computes waits longer for one, and what communicates does not.
TEST(Walk, WhatComputesIsWokenLaterAmongBusyCores) {
  Programs p;
  const std::size_t a = p.actor(0), b = p.actor(0);
  p.compute(b, 10);
  const std::size_t before = p.add(a, {1, 0, Resource::none}, 3);
  const std::size_t message = p.add(a, {1, 0, Resource::none}, 4, {before});
  const std::size_t last = p.compute(a, 1, 0, {before});
  const Timeline t = p.run({{.cores = 1, .wake = 0.5, .busy_wake = 2}});
  EXPECT_DOUBLE_EQ(t.actors[a][message].end, 2.5);
  // Its core is shared with b from 3 on.
  EXPECT_DOUBLE_EQ(t.actors[a][last].end, 1 + 2 + 2);
}

// Ranks that take turns on a core find its caches full of another's data.
TEST(Walk, MoreRanksThanCoresTakeLongerThanTheirShares) {
  Programs p;
  for (int i = 0; i < 4; ++i) p.compute(p.actor(0), 1);
  EXPECT_DOUBLE_EQ(p.run({{.cores = 2, .shared_slowdown = 1.5}}).seconds, 3);
  EXPECT_DOUBLE_EQ(p.run({{.cores = 4, .shared_slowdown = 1.5}}).seconds, 1);
}

// What a kernel takes among busy cores is its own, where that was measured.
TEST(Walk, AKernelMayHaveASlowdownOfItsOwn) {
  Programs p;
  const std::size_t a = p.actor(0);
  const std::size_t b = p.actor(0);
  p.add(a, {0, 1, Resource::compute, 1.5});
  p.compute(b, 1);
  const Timeline t = p.run({{.cores = 2, .busy_slowdown = 2}});
  EXPECT_DOUBLE_EQ(t.actors[a][0].end, 1.5);
  // The other has the cores to itself for the rest.
  EXPECT_DOUBLE_EQ(t.actors[b][0].end, 1.5 + 0.25);
}

}  // namespace
}  // namespace trireme::simulator
