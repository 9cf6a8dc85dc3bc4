// Valid schedules are changed at random: what check_schedule() says of the result must be what follows from the rules,
// written down once more and plainly.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "trireme/core/error.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/generate.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;
using Key = std::tuple<Kind, int, int>;  // kind, micro-batch, part of the model (chunk × stages + stage)

// Every micro-batch of every chunk: F, B and at most one W, in order. In a synchronous step one update, at the end.
bool complete(const Schedule& all, bool synchronous) {
  for (const std::vector<Action>& actions : all.stages) {
    std::map<std::tuple<Kind, int, int>, std::vector<std::size_t>> places;
    for (std::size_t at = 0; at < actions.size(); ++at)
      places[{actions[at].kind, actions[at].micro, actions[at].chunk}].push_back(at);
    for (int micro = 0; micro < all.micro_batches; ++micro)
      for (int chunk = 0; chunk < all.chunks; ++chunk) {
        const auto f = places[{Kind::forward, micro, chunk}];
        const auto b = places[{Kind::backward, micro, chunk}];
        const auto w = places[{Kind::weight_gradient, micro, chunk}];
        if (f.size() != 1 || b.size() != 1 || w.size() > 1 || f[0] > b[0] || (!w.empty() && b[0] > w[0])) return false;
      }
    for (const auto& [key, at] : places) {
      if (std::get<0>(key) == Kind::update) continue;
      if (std::get<1>(key) >= all.micro_batches || std::get<2>(key) >= all.chunks) return false;
    }
    const auto updates = places[{Kind::update, 0, 0}];
    if (synchronous && (updates.size() != 1 || updates[0] + 1 != actions.size())) return false;
  }
  return true;
}

// The graph of actions and messages, with sends and receives of one kind in order on both sides, has no cycle.
bool acyclic(const Schedule& all) {
  const int stages = all.stage_count();
  const int parts = stages * all.chunks;
  std::vector<std::set<int>> after;
  std::map<Key, int> action_of, before_of;  // before: the action that precedes it on its stage, or −1
  const auto node = [&] {
    after.emplace_back();
    return static_cast<int>(after.size()) - 1;
  };
  for (int stage = 0; stage < stages; ++stage) {
    int last = -1;
    for (const Action& a : all.stages[static_cast<std::size_t>(stage)]) {
      const int now = node();
      if (last >= 0) after[static_cast<std::size_t>(last)].insert(now);
      const Key key{a.kind, a.micro, a.kind == Kind::update ? -1 - stage : a.chunk * stages + stage};
      action_of[key] = now;
      before_of[key] = last;
      last = now;
    }
  }
  // Messages in the order in which a stage sends, and receives, those of a kind. Within one stage there are none.
  std::map<std::tuple<Kind, int>, std::vector<std::pair<int, int>>> sends, receives;  // (place, message)
  for (const auto& [key, consumer] : action_of) {
    const auto& [kind, micro, part] = key;
    if (kind != Kind::forward && kind != Kind::backward) continue;
    const int source = kind == Kind::forward ? part - 1 : part + 1;
    if (source < 0 || source >= parts) continue;
    const int producer = action_of.at({kind, micro, source});
    if (stages == 1) {
      after[static_cast<std::size_t>(producer)].insert(consumer);
      continue;
    }
    const int message = node();
    after[static_cast<std::size_t>(producer)].insert(message);
    after[static_cast<std::size_t>(message)].insert(consumer);
    if (before_of.at(key) >= 0) after[static_cast<std::size_t>(before_of.at(key))].insert(message);
    sends[{kind, source % stages}].emplace_back(producer, message);
    receives[{kind, part % stages}].emplace_back(consumer, message);
  }
  for (auto* side : {&sends, &receives})
    for (auto& [stage, messages] : *side) {
      std::sort(messages.begin(), messages.end());
      for (std::size_t i = 1; i < messages.size(); ++i)
        after[static_cast<std::size_t>(messages[i - 1].second)].insert(messages[i].second);
    }
  // Nodes that nothing precedes are taken away until none is left, or all that are left lie on cycles or after them.
  std::vector<int> preceding(after.size());
  for (const auto& next : after)
    for (const int n : next) ++preceding[static_cast<std::size_t>(n)];
  std::vector<int> free;
  for (std::size_t n = 0; n < after.size(); ++n)
    if (preceding[n] == 0) free.push_back(static_cast<int>(n));
  std::size_t taken = 0;
  while (!free.empty()) {
    const int n = free.back();
    free.pop_back();
    ++taken;
    for (const int next : after[static_cast<std::size_t>(n)])
      if (--preceding[static_cast<std::size_t>(next)] == 0) free.push_back(next);
  }
  return taken == after.size();
}

// By update: the micro-batches whose gradients it applies, with nothing left over, the same on all stages.
bool same_updates(const Schedule& all) {
  std::vector<std::vector<std::set<std::pair<int, int>>>> stages;
  for (const std::vector<Action>& actions : all.stages) {
    std::map<std::pair<int, int>, Action> last;  // of a micro-batch and chunk
    for (const Action& a : actions)
      if (a.kind != Kind::update) last[{a.micro, a.chunk}] = a;
    std::vector<std::set<std::pair<int, int>>> updates;
    std::set<std::pair<int, int>> now;
    for (const Action& a : actions) {
      if (a.kind == Kind::update) {
        if (now.empty()) return false;
        updates.push_back(std::exchange(now, {}));
      } else if (last[{a.micro, a.chunk}] == a) {
        now.emplace(a.micro, a.chunk);
      }
    }
    if (!now.empty()) return false;
    stages.push_back(updates);
  }
  return std::all_of(stages.begin(), stages.end(), [&](const auto& s) { return s == stages.front(); });
}

bool valid(const Schedule& schedule) {
  if (!schedule.asynchronous()) return complete(schedule, true) && acyclic(schedule);
  for (int steps = 1; steps <= 8; ++steps) {
    const Schedule all = unrolled(schedule, steps);
    if (!complete(all, false) || !same_updates(all) || !acyclic(all)) return false;
  }
  return true;
}

using Random = std::mt19937;
std::size_t below(Random& random, std::size_t n) {
  return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
}

// One or a few changes, small ones above all: those are the hardest to tell.
void change(Schedule& schedule, Random& random) {
  const auto part = [&]() -> StageActions& {
    if (!schedule.asynchronous()) return schedule.stages;
    const std::array<StageActions*, 3> all = {&schedule.fill, &schedule.stages, &schedule.drain};
    return *all[below(random, 3)];
  };
  StageActions& stages = part();
  std::vector<Action>& actions = stages[below(random, stages.size())];
  if (actions.empty()) return;
  const std::size_t at = below(random, actions.size());
  const std::size_t other = below(random, actions.size());
  switch (below(random, 7)) {
    case 0: std::swap(actions[at], actions[other]); break;
    case 1:
      if (at + 1 < actions.size()) std::swap(actions[at], actions[at + 1]);
      break;
    case 2: actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 3: actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(other), Action(actions[at])); break;
    case 4:
      if (actions[at].kind != Kind::update)
        actions[at].micro = static_cast<int>(below(random, static_cast<std::size_t>(schedule.micro_batches)));
      break;
    case 5: std::swap(actions, stages[below(random, stages.size())]); break;
    case 6: {  // two micro-batches change places on one stage
      const int a = static_cast<int>(below(random, static_cast<std::size_t>(schedule.micro_batches)));
      const int b = static_cast<int>(below(random, static_cast<std::size_t>(schedule.micro_batches)));
      for (Action& action : actions)
        if (action.kind != Kind::update) action.micro = action.micro == a ? b : action.micro == b ? a : action.micro;
      break;
    }
  }
}

TEST(ScheduleFuzz, ChangedSchedulesAreValidOrRefused) {
  const std::vector<std::string> names = {
      "sequential", "gpipe", "1f1b", "interleaved:2", "zero-bubble", "zero-bubble:auto", "pipedream", "pipedream-2bw"};
  int accepted = 0, incomplete = 0, cyclic = 0;
  for (unsigned seed = 0; seed < 6000; ++seed) {
    Random random(seed);
    const std::string& name = names[below(random, names.size())];
    const int stages = 1 + static_cast<int>(below(random, 4));
    const int micro_batches = stages + static_cast<int>(below(random, 3));
    Schedule schedule =
        make_schedule({.pipeline = parse_pipeline(name), .stages = stages, .micro_batches = micro_batches});
    const Schedule original = schedule;
    for (std::size_t changes = 1 + below(random, 2); changes > 0; --changes) change(schedule, random);
    if (schedule == original) continue;
    std::string refusal;
    try {
      check_schedule(schedule);
    } catch (const Error& e) {
      refusal = e.message();
      ASSERT_EQ(e.kind(), Error::Kind::request) << refusal;
    }
    ASSERT_EQ(refusal.empty(), valid(schedule)) << name << ", seed " << seed << ": \"" << refusal << "\"\n"
                                                << to_text(schedule);
    const bool waits = refusal.find(" waits for ") != std::string::npos;
    (refusal.empty() ? accepted : waits ? cyclic : incomplete) += 1;
  }
  // All three happen, and often.
  EXPECT_GT(accepted, 300);
  EXPECT_GT(incomplete, 300);
  EXPECT_GT(cyclic, 300);
}

}  // namespace
}  // namespace trireme::program
