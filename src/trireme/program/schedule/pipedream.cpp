#include "trireme/program/schedule/pipedream.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;

// Backwards follow in the order of the micro-batches, each with its update.
void backward(std::vector<Action>& actions, int micro, bool update) {
  actions.push_back({Kind::backward, micro});
  if (update) actions.push_back({Kind::update});
}

// `each`: an update follows every backward; else the last one of a batch.
Schedule without_flush(int stages, int micro_batches, bool each) {
  Schedule schedule{.micro_batches = micro_batches, .stages = {}, .delayed = !each};
  const auto updates = [&](int micro) { return each || micro + 1 == micro_batches; };
  for (int i = 0; i < stages; ++i) {
    const int ahead = std::min(stages - 1 - i, micro_batches - 1);
    std::vector<Action>& fill = schedule.fill.emplace_back();
    std::vector<Action>& steady = schedule.stages.emplace_back();
    std::vector<Action>& drain = schedule.drain.emplace_back();
    for (int micro = 0; micro < micro_batches; ++micro) {
      fill.push_back({Kind::forward, micro});
      if (micro >= ahead) backward(fill, micro - ahead, updates(micro - ahead));
      steady.push_back({Kind::forward, micro});
      const int behind = (micro - ahead + micro_batches) % micro_batches;
      backward(steady, behind, updates(behind));
    }
    for (int micro = micro_batches - ahead; micro < micro_batches; ++micro) backward(drain, micro, updates(micro));
  }
  return schedule;
}

}  // namespace

Schedule pipedream_schedule(int stages, int micro_batches) { return without_flush(stages, micro_batches, true); }

Schedule pipedream_2bw_schedule(int stages, int micro_batches) {
  if (micro_batches < stages)
    refuse("pipedream-2bw needs at least as many micro-batches as stages, and has {} of {}; the least is {}",
           micro_batches, stages, stages);
  return without_flush(stages, micro_batches, false);
}

}  // namespace trireme::program
