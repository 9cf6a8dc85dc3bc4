#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "trireme/program/schedule/messages.h"

namespace trireme::program {

// Goes through a synchronous or unrolled schedule in an order that its messages allow: every stage takes its actions in
// its own order, each as soon as the message that it receives is there.
//
//   ScheduleWalk walk(schedule);
//   walk.run([&](const ScheduleWalk::Turn& turn) { return has_arrived(turn.received); });
//   if (!walk.finished(2)) …                    the third stage waits for ever
class ScheduleWalk {
 public:
  struct Turn {
    std::size_t stage = 0;
    Action action = {};
    std::optional<StageMessage> received = {};  // what the action waits for
    std::optional<StageMessage> sent = {};      // what it sends afterwards
  };

  explicit ScheduleWalk(const Schedule& schedule) : schedule_(schedule), next_(schedule.stages.size()) {}

  // Until no stage can go on. `take` carries an action out, or says that its message is not there yet.
  void run(const std::function<bool(const Turn&)>& take);

  bool finished(std::size_t stage) const { return next_[stage] == schedule_.stages[stage].size(); }
  // The place of a stage's next action in its list.
  std::size_t next(std::size_t stage) const { return next_[stage]; }

 private:
  bool step(std::size_t stage, const std::function<bool(const Turn&)>& take);

  const Schedule& schedule_;
  std::vector<std::size_t> next_;  // by stage
};

}  // namespace trireme::program
