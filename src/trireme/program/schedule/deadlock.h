#pragma once
#include <optional>
#include <vector>

#include "trireme/program/schedule/schedule.h"

namespace trireme::program {

// A stage that cannot go on: its next action needs a message that another has not made, or cannot hand over.
struct Wait {
  std::size_t stage = 0;
  std::size_t action = 0;  // of the stage's list
  Action needed = {};      // what has to run, or be received, on
  std::size_t on = 0;      // this stage
};

struct Deadlock {
  std::vector<Wait> waits;  // each for the next one's stage, the last for the first's
  // The message is made, but its sender's stream is held by the message of this action, which is received later; then
  // there is one wait.
  std::optional<Action> sent_first = {};
};

// Runs a synchronous or unrolled schedule whose stages are complete (check_actions) with sends that wait for their
// receives, and tells where it stops; nothing: it completes. The order of execution makes no difference to that.
std::optional<Deadlock> find_deadlock(const Schedule& schedule);

}  // namespace trireme::program
