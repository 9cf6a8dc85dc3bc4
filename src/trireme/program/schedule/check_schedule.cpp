#include "trireme/program/schedule/check_schedule.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/program/schedule/deadlock.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;

// How a person finds a stage: "stage 1 (line 2)", "stage 1 (steady, line 7)".
class Places {
 public:
  Places(const Schedule& schedule, const ScheduleLines& lines) : schedule_(schedule), lines_(lines) {}

  // `at`: an action of the stage's unrolled list.
  std::string stage(std::size_t stage, std::size_t at = 0) const {
    if (!schedule_.asynchronous()) return part(stage, schedule_.stages);
    if (at < schedule_.fill[stage].size()) return part(stage, schedule_.fill);
    at -= schedule_.fill[stage].size();
    return part(stage, at < schedule_.stages[stage].size() * (steps - 1) ? schedule_.stages : schedule_.drain);
  }
  // `of`: one of the schedule's parts.
  std::string part(std::size_t stage, const StageActions& of) const {
    if (&of == &schedule_.fill) return with_line(stage, "fill", lines_.fill);
    if (&of == &schedule_.drain) return with_line(stage, "drain", lines_.drain);
    return with_line(stage, schedule_.asynchronous() ? "steady" : "", lines_.stages);
  }
  // The action as its line has it.
  std::string action(const Action& action) const {
    return to_text(action.kind == Kind::update
                       ? action
                       : Action{action.kind, action.micro % schedule_.micro_batches, action.chunk});
  }

  std::size_t steps = 1;

 private:
  static std::string with_line(std::size_t stage, const std::string& part, const std::vector<int>& lines) {
    std::string where = part;
    if (stage < lines.size()) where += fmt::format("{}line {}", part.empty() ? "" : ", ", lines[stage]);
    return fmt::format("stage {}{}", stage, where.empty() ? "" : " (" + where + ")");
  }

  const Schedule& schedule_;
  const ScheduleLines& lines_;
};

void check_shape(const Schedule& schedule) {
  if (schedule.stages.empty()) refuse("the schedule has no stages");
  if (schedule.micro_batches < 1 || schedule.chunks < 1)
    refuse("a schedule needs at least one micro-batch and one chunk, and has {} and {}", schedule.micro_batches,
           schedule.chunks);
  for (const StageActions* part : {&schedule.fill, &schedule.drain})
    if (part->size() != (schedule.asynchronous() ? schedule.stages.size() : 0))
      refuse("fill and drain of the schedule must have its {} stages", schedule.stages.size());
}

// Numbers that the rest may count on. A file's largest number says how many micro-batches there are; where that is by
// mistake, most of them are missing.
void check_numbers(const Schedule& schedule, const ScheduleLines& lines) {
  const Places places(schedule, lines);
  for (std::size_t i = 0; i < schedule.stages.size(); ++i) {
    for (const StageActions* part : {&schedule.fill, &schedule.stages, &schedule.drain}) {
      if (part->empty()) continue;
      for (const Action& action : (*part)[i])
        if (action.micro < 0 || action.chunk < 0 || action.micro >= schedule.micro_batches ||
            action.chunk >= schedule.chunks)
          refuse("{}: {} is of no micro-batch or chunk: there are {} and {}", places.stage(i), to_text(action),
                 schedule.micro_batches, schedule.chunks);
    }
    const std::size_t forwards = static_cast<std::size_t>(schedule.micro_batches) * schedule.chunks;
    if (schedule.stages[i].size() < forwards)
      refuse("{}: there are {} actions, and {} micro-batches of {} chunk{} need as many forwards alone",
             places.stage(i), schedule.stages[i].size(), schedule.micro_batches, schedule.chunks,
             schedule.chunks == 1 ? "" : "s");
  }
}

// One stage is its own neighbour: a chunk reads what the one before it has just made.
void check_one_stage(const Schedule& all, const Places& places) {
  std::set<std::pair<int, int>> forwarded, returned;  // micro-batch and chunk
  const std::vector<Action>& actions = all.stages.front();
  for (std::size_t a = 0; a < actions.size(); ++a) {
    const auto& [kind, micro, chunk] = actions[a];
    if (kind == Kind::forward) {
      if (chunk > 0 && !forwarded.contains({micro, chunk - 1}))
        refuse("{}: {} comes before {}", places.stage(0, a), places.action(actions[a]),
               places.action({kind, micro, chunk - 1}));
      forwarded.emplace(micro, chunk);
    } else if (kind == Kind::backward) {
      if (chunk + 1 < all.chunks && !returned.contains({micro, chunk + 1}))
        refuse("{}: {} comes before {}", places.stage(0, a), places.action(actions[a]),
               places.action({kind, micro, chunk + 1}));
      returned.emplace(micro, chunk);
    }
  }
}

// The micro-batches (and chunks) whose gradients each update of a stage applies.
std::vector<std::set<std::pair<int, int>>> applied(const std::vector<Action>& actions) {
  std::set<std::pair<int, int>> split;
  for (const Action& a : actions)
    if (a.kind == Kind::weight_gradient) split.emplace(a.micro, a.chunk);
  std::vector<std::set<std::pair<int, int>>> updates(1);
  for (const Action& a : actions) {
    if (a.kind == Kind::update) updates.emplace_back();
    if (a.kind == Kind::weight_gradient || (a.kind == Kind::backward && !split.contains({a.micro, a.chunk})))
      updates.back().emplace(a.micro, a.chunk);
  }
  return updates;  // the last: gradients that no update follows
}

void check_updates(const Schedule& all, const Places& places) {
  const auto first = applied(all.stages.front());
  for (std::size_t i = 0; i < all.stages.size(); ++i) {
    const auto updates = applied(all.stages[i]);
    if (!updates.back().empty()) {
      const auto [micro, chunk] = *updates.back().begin();
      refuse("{}: no U follows the gradients of {}", places.stage(i, all.stages[i].size()),
             places.action({Kind::backward, micro, chunk}));
    }
    for (std::size_t u = 0; u + 1 < updates.size(); ++u)
      if (updates[u].empty() || u + 1 >= first.size() || updates[u] != first[u])
        refuse("{}: update {} does not apply the gradients of the same micro-batches as on stage 0", places.stage(i),
               u);
    if (updates.size() < first.size())
      refuse("{}: there are {} updates, and {} on stage 0", places.stage(i), updates.size() - 1, first.size() - 1);
  }
}

// Fill and steady each begin all micro-batches of a step, and the drain begins none.
void check_forwards(const Schedule& schedule, const Places& places) {
  for (std::size_t i = 0; i < schedule.stages.size(); ++i) {
    for (const Action& action : schedule.drain[i])
      if (action.kind == Kind::forward)
        refuse("{}: {} begins a micro-batch, and the drain only completes what is in flight",
               places.part(i, schedule.drain), to_text(action));
    for (const StageActions* part : {&schedule.fill, &schedule.stages}) {
      std::vector<int> begun(static_cast<std::size_t>(schedule.micro_batches) * schedule.chunks);
      for (const Action& action : (*part)[i])
        if (action.kind == Kind::forward)
          ++begun[static_cast<std::size_t>(action.chunk) * schedule.micro_batches + action.micro];
      const auto wrong = std::find_if(begun.begin(), begun.end(), [](int times) { return times != 1; });
      if (wrong == begun.end()) continue;
      const auto at = static_cast<int>(wrong - begun.begin());
      refuse("{}: {} {}: a step begins each of its micro-batches once on every stage", places.part(i, *part),
             to_text(Action{Kind::forward, at % schedule.micro_batches, at / schedule.micro_batches}),
             *wrong == 0 ? "is missing" : "comes twice");
    }
  }
}

void check_stages(const Schedule& schedule, const Schedule& all, const Places& places) {
  for (std::size_t i = 0; i < all.stages.size(); ++i) {
    std::vector<Action> actions = all.stages[i];
    if (schedule.asynchronous()) std::erase_if(actions, [](const Action& a) { return a.kind == Kind::update; });
    try {
      check_actions(actions, {.micro_batches = all.micro_batches,
                              .backward = true,
                              .update = !schedule.asynchronous(),
                              .chunks = all.chunks});
    } catch (Error& e) {
      if (!schedule.asynchronous()) throw e.within(places.stage(i));
      throw e.within(fmt::format("stage {}, with micro-batch k of step s as s × {} + k, over {} step{} and the drain",
                                 i, schedule.micro_batches, places.steps, places.steps == 1 ? "" : "s"));
    }
  }
  if (all.stages.size() == 1) check_one_stage(all, places);
}

void check_waits(const Schedule& all, const Places& places) {
  const std::optional<Deadlock> found = find_deadlock(all);
  if (!found) return;
  std::vector<std::string> waits;
  for (const Wait& wait : found->waits)
    waits.push_back(fmt::format("{} at {} waits for {} of stage {}", places.stage(wait.stage, wait.action),
                                places.action(all.stages[wait.stage][wait.action]), places.action(wait.needed),
                                wait.on));
  if (!found->sent_first) refuse("the schedule deadlocks: {}", fmt::join(waits, "; "));
  const Action& first = *found->sent_first;
  refuse("{}, which sends {} first: messages are received in the order in which they are sent", waits.front(),
         places.action(first));
}

}  // namespace

void check_schedule(const Schedule& schedule, const ScheduleLines& lines) {
  check_shape(schedule);
  check_numbers(schedule, lines);
  if (schedule.asynchronous()) check_forwards(schedule, Places(schedule, lines));
  // An asynchronous schedule runs for any number of steps. One and two of them complete only if the same micro-batches
  // are in flight after fill and after a steady step, so more steps complete too. A shortest cycle of waits visits each
  // stage once, and each message reaches at most into the next step, so it lies within as many steps as stages and one.
  const auto long_run = static_cast<std::size_t>(schedule.stage_count()) + 3;
  for (const std::size_t steps :
       schedule.asynchronous() ? std::vector<std::size_t>{1, 2, long_run} : std::vector<std::size_t>{1}) {
    Places places(schedule, lines);
    places.steps = steps;
    const Schedule all = unrolled(schedule, static_cast<int>(steps));
    check_stages(schedule, all, places);
    if (schedule.asynchronous()) check_updates(all, places);
    check_waits(all, places);
  }
}

}  // namespace trireme::program
