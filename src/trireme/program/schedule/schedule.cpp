#include "trireme/program/schedule/schedule.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::program {
namespace {

constexpr int kMaxNumber = 999999;  // of a micro-batch or chunk; a slip of the finger is no reason to allocate
constexpr std::string_view kFill = "fill";
constexpr std::string_view kSteady = "steady";
constexpr std::string_view kDelayed = "steady delayed";
constexpr std::string_view kDrain = "drain";
constexpr std::string_view kNothing = "-";

std::string part_text(const StageActions& stages) {
  std::string out;
  for (const std::vector<Action>& actions : stages)
    out += (actions.empty() ? std::string(kNothing) : to_text(actions)) + "\n";
  return out;
}

struct Reader {
  Schedule schedule;
  ScheduleLines lines;
  StageActions* part = nullptr;
  std::vector<int>* part_lines = nullptr;

  Reader() { enter(schedule.stages, lines.stages); }

  void enter(StageActions& stages, std::vector<int>& at) {
    part = &stages;
    part_lines = &at;
  }

  bool heading(std::string_view line) {
    const bool delayed = line == kDelayed;
    if (line == kFill)
      enter(schedule.fill, lines.fill);
    else if (line == kSteady || delayed)
      enter(schedule.stages, lines.stages);
    else if (line == kDrain)
      enter(schedule.drain, lines.drain);
    else
      return false;
    schedule.delayed |= delayed;
    if (!part->empty()) refuse("the part '{}' comes twice, or follows stages without a part", line);
    return true;
  }

  void line(std::string_view text, int number) {
    const std::string_view line = trim(text.substr(0, text.find('#')));
    if (line.empty() || heading(line)) return;
    std::vector<Action> actions = line == kNothing ? std::vector<Action>() : parse_actions(line);
    for (const Action& action : actions) {
      if (action.micro > kMaxNumber || action.chunk > kMaxNumber)
        refuse("{}: numbers go up to {}", to_text(action), kMaxNumber);
      schedule.micro_batches = std::max(schedule.micro_batches, action.micro + 1);
      schedule.chunks = std::max(schedule.chunks, action.chunk + 1);
    }
    part->push_back(std::move(actions));
    part_lines->push_back(number);
  }
};

// Numbers the micro-batches of one part after another.
class Unroller {
 public:
  Unroller(const Schedule& schedule) : schedule_(schedule) {
    latest_.resize(static_cast<std::size_t>(schedule.micro_batches) * schedule.chunks);
  }

  void append(const std::vector<Action>& actions, int step, std::vector<Action>& to) {
    for (Action action : actions) {
      int& latest = latest_[static_cast<std::size_t>(action.chunk) * schedule_.micro_batches + action.micro];
      if (action.kind == Action::Kind::forward) latest = step;
      if (action.kind != Action::Kind::update) action.micro += latest * schedule_.micro_batches;
      to.push_back(action);
    }
  }

 private:
  const Schedule& schedule_;
  std::vector<int> latest_;  // by micro-batch and chunk: the step of its latest forward
};

}  // namespace

std::string to_text(const Schedule& schedule) {
  if (!schedule.asynchronous()) return part_text(schedule.stages);
  return fmt::format("{}\n{}{}\n{}{}\n{}", kFill, part_text(schedule.fill), schedule.delayed ? kDelayed : kSteady,
                     part_text(schedule.stages), kDrain, part_text(schedule.drain));
}

Schedule parse_schedule(std::string_view text, ScheduleLines* lines) {
  Reader reader;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    try {
      reader.line(line, number);
    } catch (Error& e) {
      throw e.within(fmt::format("line {}", number));
    }
  }
  const Schedule& schedule = reader.schedule;
  if (schedule.stages.empty()) refuse("the schedule has no stages: each is a line of actions, such as F0 B0 U");
  for (const auto& [name, part] : {std::pair(kFill, &schedule.fill), std::pair(kDrain, &schedule.drain)})
    if (part->size() != schedule.stages.size() && (!schedule.fill.empty() || !schedule.drain.empty()))
      refuse("the part '{}' has {} stages, and '{}' has {}", name, part->size(), kSteady, schedule.stages.size());
  if (schedule.delayed && schedule.fill.empty()) refuse("'{}' needs the parts '{}' and '{}'", kDelayed, kFill, kDrain);
  if (lines != nullptr) *lines = reader.lines;
  return reader.schedule;
}

Schedule unrolled(const Schedule& schedule, int steps) {
  if (!schedule.asynchronous()) return schedule;
  Schedule all{.micro_batches = schedule.micro_batches * steps, .chunks = schedule.chunks, .stages = {}};
  for (std::size_t i = 0; i < schedule.stages.size(); ++i) {
    std::vector<Action>& actions = all.stages.emplace_back();
    Unroller unroller(schedule);
    unroller.append(schedule.fill[i], 0, actions);
    for (int step = 1; step < steps; ++step) unroller.append(schedule.stages[i], step, actions);
    unroller.append(schedule.drain[i], steps, actions);
  }
  return all;
}

}  // namespace trireme::program
