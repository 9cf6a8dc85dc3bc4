#include "trireme/compiler/async_stage.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/passes/in_flight.h"

namespace trireme::compiler {
namespace {

using program::Action;
using program::GraphCall;

void append(passes::SlotStates& all, const passes::SlotStates& more) {
  all.insert(all.end(), more.begin(), more.end());
}

class Calls {
 public:
  Calls(const AsyncStage& stage, const ir::Module& module, AsyncStage::Part part, int steps, const std::string& update)
      : stage_(stage), module_(module), part_(part), update_(update), first_(steps * stage.micro_batches) {}

  std::vector<GraphCall> run(const std::vector<Action>& actions) {
    // Nothing was updated since the pipeline was empty: the version is the weights as they are.
    if (stage_.delayed && part_ == AsyncStage::Part::fill) stash(0, 0);
    for (const Action& action : actions) switch (action.kind) {
        case Action::Kind::forward: forward(action.micro); break;
        case Action::Kind::backward: backward(action.micro); break;
        case Action::Kind::update: update(); break;
        case Action::Kind::weight_gradient: fail("{} is no action of an asynchronous pipeline", to_text(action));
      }
    return std::move(calls_);
  }

 private:
  const passes::SlotStates& flight(int micro) {
    const int slot = micro % stage_.slots;
    const auto [known, fresh] = flight_.try_emplace(slot);
    if (fresh) known->second = passes::in_flight_slot(module_, slot);
    return known->second;
  }

  passes::SlotStates version(int micro) const {
    if (stage_.delayed || stage_.ahead == 0) return {};
    return passes::in_version_slot(module_, micro % stage_.versions);
  }

  void forward(int k) {
    stash_newest();
    const int micro = first_ + k;
    passes::SlotStates states = flight(micro);
    // A step reads the weights of one update before the newest: after the update of the step before, these are the
    // version.
    const bool updated = stage_.ahead == 0 || updated_;
    if (stage_.delayed && part_ == AsyncStage::Part::step && updated)
      append(states, passes::versions_for_weights(module_));
    calls_.push_back({passes::kForward, k, std::move(states)});
    made_.push_back(k);
    newest_ = micro;
  }

  void backward(int k) {
    const bool made_here = std::find(made_.begin(), made_.end(), k) != made_.end();
    const int micro = first_ + k - (made_here ? 0 : stage_.micro_batches);
    passes::SlotStates states = flight(micro);
    append(states, version(micro));
    calls_.push_back({passes::kBackward, k, std::move(states)});
    last_ = k;
  }

  void update() {
    if (stage_.delayed)
      stash(last_, 0);
    else
      stash_newest();
    calls_.push_back({update_, last_, {}, true});
    updated_ = true;
  }

  // The weights that the newest micro-batch has read: before the next one's forward, or before they are updated, when
  // the backward that read the slot is done.
  void stash_newest() {
    if (newest_ < 0 || stage_.delayed || stage_.ahead == 0) return;
    stash(newest_ - first_, newest_);
    newest_ = -1;
  }

  void stash(int k, int micro) { calls_.push_back({passes::kStash, k, version(micro)}); }

  const AsyncStage& stage_;
  const ir::Module& module_;
  AsyncStage::Part part_;
  std::string update_;  // the graph
  int first_;           // micro-batch of this step, counted since the pipeline was empty
  std::vector<GraphCall> calls_;
  std::map<int, passes::SlotStates> flight_;  // by slot
  std::vector<int> made_;                     // micro-batches of this step whose forwards are done
  int newest_ = -1;                           // of which no version is kept yet
  int last_ = 0;                              // the last backward's
  bool updated_ = false;
};

// A schedule of one's own updates as the named ones do: what is kept of a micro-batch, and for how long, follows from
// that.
void check_own(const program::Schedule& schedule, int stage) {
  const auto at = static_cast<std::size_t>(stage);
  const std::string nearest = schedule.delayed ? "pipedream-2bw" : "pipedream";
  const std::vector<Action>& step = schedule.stages[at];
  const auto updates =
      std::count_if(step.begin(), step.end(), [](const Action& a) { return a.kind == Action::Kind::update; });
  if (schedule.chunks > 1)
    refuse(
        "parallel.pipeline: stages of an asynchronous schedule have one chunk, and the file's have {}; the nearest is "
        "\"{}\"",
        schedule.chunks, nearest);
  if (schedule.delayed && updates != 1)
    refuse("parallel.pipeline: a delayed schedule has one U in a step, and stage {} has {}; the nearest is \"{}\"",
           stage, updates, nearest);
  const std::array<const std::vector<Action>*, 3> parts = {&schedule.fill[at], &step, &schedule.drain[at]};
  // Before what follows a backward is looked at.
  for (const std::vector<Action>* part : parts)
    for (const Action& action : *part)
      if (action.kind == Action::Kind::weight_gradient)
        refuse(
            "parallel.pipeline: an asynchronous schedule has no {}: a backward is whole there; the nearest is \"{}\"",
            to_text(action), nearest);
  for (const std::vector<Action>* part : parts)
    for (std::size_t a = 0; a < part->size(); ++a) {
      const Action& action = (*part)[a];
      const bool updated = a + 1 < part->size() && (*part)[a + 1].kind == Action::Kind::update;
      if (action.kind == Action::Kind::backward && !schedule.delayed && !updated)
        refuse(
            "parallel.pipeline: without the line \"delayed\" every micro-batch has its update, and no U follows {} of "
            "stage {}; the nearest is \"{}\"",
            to_text(action), stage, nearest);
    }
  // In the order in which they began, and no more of them than are in flight between two steps, and one.
  const auto ahead = std::count_if(schedule.drain[at].begin(), schedule.drain[at].end(),
                                   [](const Action& a) { return a.kind == Action::Kind::backward; });
  // The last stage makes the loss of what it has begun.
  if (stage + 1 == std::ssize(schedule.stages) && ahead > 0)
    refuse(
        "parallel.pipeline: the last stage ends each part with what it has begun, and stage {} leaves {} micro-batch{} "
        "to the drain; the nearest is \"{}\"",
        stage, ahead, ahead == 1 ? "" : "es", nearest);
  // Which weights a forward has read is known until its part ends; and a delayed sum has begun when its step ends.
  const Action::Kind ends = schedule.delayed ? Action::Kind::backward : Action::Kind::update;
  for (const std::vector<Action>* part : {&schedule.fill[at], &step})
    if (ahead > 0 && !part->empty() && part->back().kind != ends)
      refuse(
          "parallel.pipeline: {} of {} schedule ends each stage that is ahead with {}, and stage {} with {}; the "
          "nearest "
          "is \"{}\"",
          part == &step ? "steady" : "fill", schedule.delayed ? "a delayed" : "an asynchronous",
          schedule.delayed ? "a backward" : "U", stage, to_text(part->back()), nearest);
  std::deque<int> open;
  for (const std::vector<Action>* part : {&schedule.fill[at], &step, &step, &schedule.drain[at]})
    for (const Action& action : *part) {
      if (action.kind == Action::Kind::forward) open.push_back(action.micro);
      if (std::ssize(open) > ahead + 1)
        refuse(
            "parallel.pipeline: stage {} has {} micro-batches in flight at {}, and {} between two steps: at most one "
            "more is kept; the nearest is \"{}\"",
            stage, open.size(), to_text(action), ahead, nearest);
      if (action.kind != Action::Kind::backward) continue;
      if (open.empty() || open.front() != action.micro)
        refuse("parallel.pipeline: {} of stage {} overtakes a micro-batch that began before it; the nearest is \"{}\"",
               to_text(action), stage, nearest);
      open.pop_front();
    }
}

}  // namespace

int AsyncStage::period() const {
  const int same = std::lcm(slots, std::max(versions, 1));
  return same / std::gcd(same, micro_batches);
}

void AsyncStage::choose_slots() {
  constexpr int kFewPrograms = 4;
  constexpr int kFewMicroBatches = 128;  // in all programs together
  const auto few = [&] { return period() <= kFewPrograms || period() * micro_batches <= kFewMicroBatches; };
  slots = ahead + 1;
  versions = delayed ? 1 : ahead;
  if (ahead == 0) return;
  const int most = slots + std::max(slots / 4, 1);
  std::vector<std::array<int, 3>> choices;  // slots of both kinds together, of each
  for (int s = slots; s <= most; ++s)
    for (int v = versions; v <= (delayed ? versions : most); ++v) choices.push_back({s + v, s, v});
  std::sort(choices.begin(), choices.end());
  for (const auto& [both, s, v] : choices) {
    if (few()) return;
    const AsyncStage other{.micro_batches = micro_batches, .slots = s, .versions = v};
    if (other.period() >= period()) continue;
    slots = s;
    versions = v;
  }
}

std::vector<GraphCall> AsyncStage::calls(const ir::Module& module, Part part, int steps,
                                         const std::string& update) const {
  return Calls(*this, module, part, steps, update).run(part == Part::fill ? fill : part == Part::step ? step : drain);
}

std::optional<AsyncStage> async_stage(const Graphs& graphs, const Plan& plan, int stage) {
  if (plan.stages() == 1 || graphs.purpose != Purpose::train) return std::nullopt;
  using Kind = program::PipelineName::Kind;
  if (plan.pipeline.kind == Kind::zero_bubble_auto) return std::nullopt;  // which takes a while to find
  const program::Schedule schedule = plan.schedule(graphs.micro_batches);
  if (!schedule.asynchronous()) return std::nullopt;
  if (plan.pipeline.kind == Kind::file) check_own(schedule, stage);
  if (plan.precision == Precision::fp16)
    refuse(
        "train.precision = \"fp16\" does not go with an asynchronous pipeline: its scale follows one finite flag of "
        "all stages; the nearest is \"bf16\"");
  const auto at = static_cast<std::size_t>(stage);
  AsyncStage own{.micro_batches = schedule.micro_batches,
                 .delayed = schedule.delayed,
                 .fill = schedule.fill[at],
                 .step = schedule.stages[at],
                 .drain = schedule.drain[at]};
  own.ahead = static_cast<int>(std::count_if(own.drain.begin(), own.drain.end(),
                                             [](const Action& a) { return a.kind == Action::Kind::backward; }));
  own.choose_slots();
  return own;
}

std::string slot_program(const std::string& part, std::int64_t steps, int period) {
  const std::int64_t number = steps % period;
  return number == 0 ? part : fmt::format("{}.{}", part, number);
}

}  // namespace trireme::compiler
