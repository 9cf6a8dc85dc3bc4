#include "trireme/program/schedule/walk.h"

#include <numeric>

namespace trireme::program {

void ScheduleWalk::run(const std::function<bool(const Turn&)>& take) {
  const std::size_t stages = next_.size();
  std::vector<std::size_t> awake(stages);  // stages that may have something to do
  std::iota(awake.begin(), awake.end(), 0);
  while (!awake.empty()) {
    const std::size_t stage = awake.back();
    awake.pop_back();
    bool progress = false;
    while (step(stage, take)) progress = true;
    // Messages go between neighbours alone.
    if (progress) awake.insert(awake.end(), {(stage + stages - 1) % stages, (stage + 1) % stages});
  }
}

bool ScheduleWalk::step(std::size_t stage, const std::function<bool(const Turn&)>& take) {
  if (finished(stage)) return false;
  const Action& action = schedule_.stages[stage][next_[stage]];
  const int place = static_cast<int>(stage);
  if (!take({stage, action, received_by(schedule_, place, action), sent_by(schedule_, place, action)})) return false;
  ++next_[stage];
  return true;
}

}  // namespace trireme::program
