#include "trireme/program/schedule/zero_bubble.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "trireme/core/error.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;

constexpr int kTries = 16;         // of distances between forwards and backwards
constexpr int kGreedyStages = 64;  // its time grows with the square of the stages

// How far a stage's forwards are ahead of its backwards, and its weight gradients behind them, in micro-batches. It
// holds ahead + 1 + behind of them.
struct Distance {
  int ahead = 0;
  int behind = 0;
};

std::vector<Action> at_distance(int micro_batches, const Distance& distance) {
  std::vector<Action> actions;
  int forwards = 0, backwards = 0, weights = 0;
  while (forwards < std::min(distance.ahead, micro_batches)) actions.push_back({Kind::forward, forwards++});
  while (weights < micro_batches) {
    if (forwards < micro_batches) actions.push_back({Kind::forward, forwards++});
    if (backwards < micro_batches) actions.push_back({Kind::backward, backwards++});
    if (backwards == micro_batches || backwards - weights > distance.behind)
      actions.push_back({Kind::weight_gradient, weights++});
  }
  actions.push_back({Kind::update});
  return actions;
}

// ZB-H1 with `extra` = 0, ZB-H2 with p − 1, and what lies between; never beyond the limits.
std::vector<Distance> distances(int stages, int extra, const std::vector<int>& limits) {
  std::vector<Distance> all;
  int ahead = std::numeric_limits<int>::max();
  for (int i = 0; i < stages; ++i) {
    const int room = limits[static_cast<std::size_t>(i)] - 1;
    // A stage that wants more forwards than the one before it gives before its first backward would deadlock.
    ahead = std::min({ahead, room, stages - 1 - i + std::min(stages - 1 - i, extra)});
    all.push_back({ahead, std::clamp(stages - 1 + extra - ahead, 0, room - ahead)});
  }
  return all;
}

Schedule at_distances(int micro_batches, const std::vector<Distance>& all) {
  Schedule schedule{.micro_batches = micro_batches, .stages = {}};
  for (const Distance& distance : all) schedule.stages.push_back(at_distance(micro_batches, distance));
  return schedule;
}

// Makes the lists while a clock runs: a stage that is free takes a backward that is ready, else a forward that is ready
// and fits, else a weight gradient.
class Greedy {
 public:
  Greedy(int micro_batches, const std::vector<int>& limits, const std::vector<Distance>& distances,
         const ScheduleCosts& costs)
      : micro_batches_(micro_batches), limits_(limits), distances_(distances), costs_(costs), stages_(limits.size()) {
    schedule_.micro_batches = micro_batches;
    schedule_.stages.resize(limits.size());
  }

  Schedule run() {
    while (true) {
      std::optional<std::pair<double, std::size_t>> first;
      for (std::size_t i = 0; i < stages_.size(); ++i)
        if (const std::optional<Choice> choice = choose(i))
          if (!first || choice->start < first->first) first = {choice->start, i};
      if (!first) break;
      take(first->second, *choose(first->second));
    }
    for (std::vector<Action>& actions : schedule_.stages) actions.push_back({Kind::update});
    return std::move(schedule_);
  }

 private:
  struct Stage {
    std::vector<double> forwards, backwards;  // when they were done
    int weights = 0;
    double free = 0;
  };
  struct Choice {
    Kind kind = Kind::forward;
    double start = 0;
  };

  // When the stage may start its next forward or backward; nothing: it has none, or its message is not made yet.
  std::optional<double> forward_from(std::size_t i) const {
    const Stage& s = stages_[i];
    const std::size_t next = s.forwards.size();
    const bool fits = static_cast<int>(next) - s.weights < limits_[i] &&
                      static_cast<int>(next - s.backwards.size()) <= distances_[i].ahead;
    if (static_cast<int>(next) == micro_batches_ || !fits) return std::nullopt;
    return i == 0 ? s.free : arrival(stages_[i - 1].forwards, next, s.free);
  }
  std::optional<double> backward_from(std::size_t i) const {
    const Stage& s = stages_[i];
    const std::size_t next = s.backwards.size();
    if (next == s.forwards.size()) return std::nullopt;
    return i + 1 == stages_.size() ? s.free : arrival(stages_[i + 1].backwards, next, s.free);
  }
  std::optional<double> arrival(const std::vector<double>& done, std::size_t micro, double free) const {
    if (micro >= done.size()) return std::nullopt;
    return std::max(free, done[micro] + costs_.latency);
  }

  std::optional<Choice> choose(std::size_t i) const {
    const Stage& s = stages_[i];
    const std::optional<double> backward = backward_from(i);
    const std::optional<double> forward = forward_from(i);
    if (backward && *backward <= s.free) return Choice{Kind::backward, s.free};
    if (forward && *forward <= s.free) return Choice{Kind::forward, s.free};
    if (s.weights < static_cast<int>(s.backwards.size())) return Choice{Kind::weight_gradient, s.free};
    if (backward && (!forward || *backward <= *forward)) return Choice{Kind::backward, *backward};
    if (forward) return Choice{Kind::forward, *forward};
    return std::nullopt;
  }

  void take(std::size_t i, const Choice& choice) {
    Stage& s = stages_[i];
    const ActionCost& cost = costs_.of(i);
    std::vector<Action>& actions = schedule_.stages[i];
    if (choice.kind == Kind::weight_gradient) {
      actions.push_back({choice.kind, s.weights++});
      s.free = choice.start + cost.weight_gradient;
      return;
    }
    const bool forward = choice.kind == Kind::forward;
    std::vector<double>& done = forward ? s.forwards : s.backwards;
    actions.push_back({choice.kind, static_cast<int>(done.size())});
    s.free = choice.start + (forward ? cost.forward : cost.backward);
    done.push_back(s.free);
  }

  int micro_batches_;
  const std::vector<int>& limits_;
  const std::vector<Distance>& distances_;
  const ScheduleCosts& costs_;
  std::vector<Stage> stages_;
  Schedule schedule_;
};

}  // namespace

Schedule zero_bubble_schedule(int stages, int micro_batches) {
  return at_distances(micro_batches, distances(stages, 0, std::vector<int>(static_cast<std::size_t>(stages), stages)));
}

Schedule zero_bubble_auto_schedule(int stages, int micro_batches, const std::vector<int>& max_held,
                                   const ScheduleCosts& costs) {
  const auto count = static_cast<std::size_t>(stages);
  if (max_held.size() > 1 && max_held.size() != count)
    refuse("zero-bubble:auto has {} limits of micro-batches held for {} stages", max_held.size(), stages);
  std::vector<int> limits(count, 2 * stages + micro_batches);
  for (std::size_t i = 0; i < count && !max_held.empty(); ++i) limits[i] = max_held[max_held.size() == 1 ? 0 : i];
  for (std::size_t i = 0; i < count; ++i)
    if (limits[i] < 1)
      refuse("zero-bubble:auto needs room for at least 1 micro-batch on stage {}, not {}", i, limits[i]);

  Schedule best;
  std::optional<std::tuple<double, double, int>> best_cost;
  const auto consider = [&](Schedule candidate) {
    const ScheduleTiming timing = time_schedule(candidate, costs);
    const std::vector<int> holds = held(candidate);
    const std::tuple cost(timing.makespan, timing.longest_stage(), std::accumulate(holds.begin(), holds.end(), 0));
    if (best_cost && cost >= *best_cost) return;
    best = std::move(candidate);
    best_cost = cost;
  };
  // Deep pipelines try fewer: the time of a try grows with their size.
  const int step = (stages + kTries - 1) / kTries;
  for (int extra = 0; extra < stages; extra += extra + step < stages ? step : std::max(stages - 1 - extra, 1)) {
    const std::vector<Distance> all = distances(stages, extra, limits);
    consider(at_distances(micro_batches, all));
    if (stages <= kGreedyStages) consider(Greedy(micro_batches, limits, all, costs).run());
  }
  return best;
}

}  // namespace trireme::program
