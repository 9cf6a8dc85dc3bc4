#include "trireme/program/schedule/timing.h"

#include <algorithm>
#include <array>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/program/schedule/walk.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;

// By micro-batch and chunk: whether a stage has a W for it.
class Splits {
 public:
  Splits(const Schedule& schedule, const std::vector<Action>& actions)
      : micro_batches_(schedule.micro_batches),
        split_(static_cast<std::size_t>(schedule.micro_batches) * schedule.chunks) {
    for (const Action& a : actions)
      if (a.kind == Kind::weight_gradient) split_[key(a)] = true;
  }
  bool of(const Action& a) const { return split_[key(a)]; }
  // The action after which nothing of the micro-batch is needed any more.
  bool completes(const Action& a) const {
    return a.kind == Kind::weight_gradient || (a.kind == Kind::backward && !of(a));
  }

 private:
  std::size_t key(const Action& a) const { return static_cast<std::size_t>(a.chunk) * micro_batches_ + a.micro; }
  std::size_t micro_batches_;
  std::vector<bool> split_;
};

// When every message is sent and every action is done.
class Clock {
 public:
  Clock(const Schedule& schedule, const ScheduleCosts& costs, const SendsInFlight& limits = {})
      : schedule_(schedule),
        costs_(costs),
        walk_(schedule),
        free_(schedule.stages.size()),
        limits_{static_cast<std::size_t>(limits.activations), static_cast<std::size_t>(limits.gradients)} {
    const std::size_t parts = schedule.stages.size() * schedule.chunks;
    for (auto& order : order_) order.resize(schedule.stages.size());
    for (auto& sent : sent_) sent.assign(parts * schedule.micro_batches, kNotYet);
    for (const auto& actions : schedule.stages) {
      splits_.emplace_back(schedule, actions);
      timing_.stages.emplace_back().reserve(actions.size());
    }
  }

  ScheduleTiming run() {
    TRI_CHECK(ends(), "a stage waits for ever: the schedule is not checked");
    timing_.makespan = *std::max_element(free_.begin(), free_.end());
    return std::move(timing_);
  }

  // Whether all stages come to their ends; nothing is done twice.
  bool ends() {
    walk_.run([&](const ScheduleWalk::Turn& turn) { return take(turn); });
    for (std::size_t stage = 0; stage < free_.size(); ++stage)
      if (!walk_.finished(stage)) return false;
    return true;
  }

 private:
  static constexpr double kNotYet = -1;

  double& sent(const StageMessage& message) {
    const std::size_t part = static_cast<std::size_t>(message.chunk) * free_.size() + message.from;
    return sent_[static_cast<std::size_t>(message.kind)][part * schedule_.micro_batches + message.micro];
  }

  // When the message is with its receiver that must be there before this action starts; nothing: not yet.
  std::optional<double> room(std::size_t stage, const Action& a) {
    if (a.kind != Kind::forward && a.kind != Kind::backward) return 0;
    const std::size_t kind = a.kind == Kind::forward ? 0 : 1;
    const std::vector<StageMessage>& sent = order_[kind][stage];
    const std::size_t limit = limits_[kind];
    if (limit == 0 || sent.size() <= limit) return 0;
    const StageMessage& first = sent[sent.size() - 1 - limit];
    const auto to = static_cast<std::size_t>(first.to);
    const std::vector<Action>& actions = schedule_.stages[to];
    const auto at = static_cast<std::size_t>(std::find(actions.begin(), actions.end(), receiver(schedule_, first)) -
                                             actions.begin());
    if (walk_.next(to) < at) return std::nullopt;
    return at == 0 ? 0 : timing_.stages[to][at - 1].finish;
  }

  double cost(std::size_t stage, const Action& a) const {
    const ActionCost& cost = costs_.of(stage);
    if (a.kind == Kind::forward) return cost.forward;
    if (a.kind == Kind::weight_gradient) return cost.weight_gradient;
    if (a.kind == Kind::update) return cost.update;
    return splits_[stage].of(a) ? cost.backward : cost.backward + cost.weight_gradient;
  }

  bool take(const ScheduleWalk::Turn& turn) {
    double start = free_[turn.stage];
    if (turn.received) {
      const double at = sent(*turn.received);
      if (at == kNotYet) return false;
      start = std::max(start, at + costs_.latency);
    }
    const std::optional<double> from = room(turn.stage, turn.action);
    if (!from) return false;
    start = std::max(start, *from);
    const double finish = start + cost(turn.stage, turn.action);
    if (turn.sent) {
      sent(*turn.sent) = finish;
      order_[static_cast<std::size_t>(turn.sent->kind)][turn.stage].push_back(*turn.sent);
    }
    timing_.stages[turn.stage].push_back({start, finish});
    timing_.busy += finish - start;
    free_[turn.stage] = finish;
    return true;
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  ScheduleWalk walk_;
  std::vector<Splits> splits_;               // by stage
  std::vector<double> free_;                 // from when on a stage has nothing to do
  std::array<std::vector<double>, 2> sent_;  // by kind of message, part of the model and micro-batch
  std::array<std::size_t, 2> limits_;        // by kind of message
  std::array<std::vector<std::vector<StageMessage>>, 2> order_;  // by kind and stage: what was sent
  ScheduleTiming timing_;
};

// Steps after which further ones are all the same: a stage's lead over the last one is bounded by what is in flight.
int settled_steps(const Schedule& schedule) { return schedule.asynchronous() ? schedule.stage_count() + 3 : 1; }

// A version of the weights: from the update that makes it to its last reader, by place in the stage's list.
struct Version {
  std::size_t born = 0;
  std::size_t last = 0;  // exclusive
};

// Micro-batches that a stage of an asynchronous schedule has in flight between two steps.
int ahead(const Schedule& schedule, std::size_t stage) {
  const std::vector<Action>& drain = schedule.drain[stage];
  return static_cast<int>(
      std::count_if(drain.begin(), drain.end(), [](const Action& a) { return a.kind == Kind::backward; }));
}

// An update may overwrite the version before it where no later action reads that one.
int versions_of(const std::vector<Action>& actions, const Schedule& all, const Schedule& schedule) {
  const Splits splits(all, actions);
  std::vector<Version> versions(1);
  std::vector<std::size_t> reads(static_cast<std::size_t>(all.micro_batches) * all.chunks);  // the version
  const auto key = [&](const Action& a) { return static_cast<std::size_t>(a.chunk) * all.micro_batches + a.micro; };
  for (std::size_t at = 0; at < actions.size(); ++at) {
    const Action& a = actions[at];
    if (a.kind == Kind::update) {
      versions.back().last = std::max(versions.back().last, at);
      versions.push_back({at, at + 1});
    } else if (a.kind == Kind::forward) {
      const int step = a.micro / schedule.micro_batches;
      reads[key(a)] = schedule.delayed ? static_cast<std::size_t>(std::max(step - 1, 0)) : versions.size() - 1;
    }
    if (splits.completes(a)) {
      Version& read = versions[reads[key(a)]];
      read.last = std::max(read.last, at + 1);
    }
  }
  std::vector<int> change(actions.size() + 1);  // of how many there are, by place
  for (const Version& version : versions) {
    if (version.born >= version.last) continue;
    ++change[version.born];
    --change[version.last];
  }
  int now = 0;
  int most = 0;
  for (const int by : change) most = std::max(most, now += by);
  return most;
}

}  // namespace

double ScheduleTiming::bubble() const {
  const double whole = makespan * static_cast<double>(stages.size());
  return whole > 0 ? (whole - busy) / whole : 0;
}

double ScheduleTiming::longest_stage() const {
  double longest = 0;
  for (const std::vector<Slot>& slots : stages)
    if (!slots.empty()) longest = std::max(longest, slots.back().finish - slots.front().start);
  return longest;
}

ScheduleTiming time_schedule(const Schedule& schedule, const ScheduleCosts& costs) {
  TRI_CHECK(!schedule.asynchronous(), "the steps of an asynchronous schedule must be unrolled");
  return Clock(schedule, costs).run();
}

SendsInFlight sends_in_flight(const Schedule& schedule) {
  if (schedule.asynchronous()) {
    // All that a stage has sent in its part of a step has arrived when that part ends. Until its last forward it may
    // have made the gradients of all micro-batches but as many as it is ahead, and one; the stage before it takes all
    // but as many as that one is ahead.
    SendsInFlight limits{.gradients = 1};
    for (std::size_t s = 1; s < schedule.drain.size(); ++s)
      limits.gradients = std::max(limits.gradients, ahead(schedule, s - 1) - ahead(schedule, s) - 2);
    return limits;
  }
  const ScheduleCosts costs;
  const double free = time_schedule(schedule, costs).makespan;
  SendsInFlight limits;
  for (int SendsInFlight::*const kind : {&SendsInFlight::activations, &SendsInFlight::gradients})
    for (int count = 1;; ++count) {
      TRI_CHECK(count <= schedule.micro_batches * schedule.chunks, "messages that are never sent hold up a stage");
      limits.*kind = count;
      Clock clock(schedule, costs, limits);
      if (clock.ends() && clock.run().makespan <= free) break;
    }
  return limits;
}

SteadyState steady_state(const Schedule& schedule, const ScheduleCosts& costs) {
  const int steps = settled_steps(schedule);
  const ScheduleTiming before = time_schedule(unrolled(schedule, steps), costs);
  const ScheduleTiming after = time_schedule(unrolled(schedule, steps + 1), costs);
  const double period = after.makespan - before.makespan;
  const double whole = period * schedule.stage_count();
  return {period, whole > 0 ? (whole - (after.busy - before.busy)) / whole : 0};
}

std::vector<int> held(const Schedule& schedule) {
  const Schedule all = unrolled(schedule, schedule.asynchronous() ? 3 : 1);
  std::vector<int> most;
  for (const std::vector<Action>& actions : all.stages) {
    const Splits splits(all, actions);
    int now = 0;
    int& stage = most.emplace_back(0);
    for (const Action& a : actions) {
      now += a.kind == Kind::forward ? 1 : 0;
      stage = std::max(stage, now);
      now -= splits.completes(a) ? 1 : 0;
    }
  }
  return most;
}

std::vector<int> weight_versions(const Schedule& schedule) {
  if (!schedule.asynchronous()) return std::vector<int>(schedule.stages.size(), 1);
  // Enough steps for as many updates as there are stages.
  const Schedule all = unrolled(schedule, settled_steps(schedule));
  std::vector<int> versions;
  for (const std::vector<Action>& actions : all.stages) versions.push_back(versions_of(actions, all, schedule));
  return versions;
}

}  // namespace trireme::program
