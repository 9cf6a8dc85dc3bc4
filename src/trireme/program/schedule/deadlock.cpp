#include "trireme/program/schedule/deadlock.h"

#include <algorithm>
#include <array>

#include "trireme/core/error.h"
#include "trireme/program/schedule/walk.h"

namespace trireme::program {
namespace {

class Run {
 public:
  explicit Run(const Schedule& schedule) : schedule_(schedule), walk_(schedule), sides_(schedule.stages.size()) {}

  // Until no stage can go on.
  void run() {
    walk_.run([&](const ScheduleWalk::Turn& turn) {
      if (turn.received) {
        const StageMessage* first = head(*turn.received);
        if (first == nullptr || *first != *turn.received) return false;
        ++side(*turn.received).received[kind(*turn.received)];
      }
      if (turn.sent) side(*turn.sent).sent[kind(*turn.sent)].push_back(*turn.sent);
      return true;
    });
  }

  std::optional<Deadlock> stopped() const {
    for (std::size_t stage = 0; stage < sides_.size(); ++stage)
      if (!walk_.finished(stage)) return explain(stage);
    return std::nullopt;
  }

 private:
  // What a stage has sent, and how much of it is received, by kind.
  struct Side {
    std::array<std::vector<StageMessage>, 2> sent = {};
    std::array<std::size_t, 2> received = {};
  };

  static std::size_t kind(const StageMessage& message) { return static_cast<std::size_t>(message.kind); }
  Side& side(const StageMessage& message) { return sides_[static_cast<std::size_t>(message.from)]; }
  const Action& next(std::size_t stage) const { return schedule_.stages[stage][walk_.next(stage)]; }

  // The message at the head of a sender's stream; null: there is none.
  const StageMessage* head(const StageMessage& like) const {
    const Side& from = sides_[static_cast<std::size_t>(like.from)];
    const std::size_t received = from.received[kind(like)];
    return received < from.sent[kind(like)].size() ? &from.sent[kind(like)][received] : nullptr;
  }

  Deadlock explain(std::size_t stage) const {
    Deadlock found;
    while (true) {
      const auto seen =
          std::find_if(found.waits.begin(), found.waits.end(), [&](const Wait& wait) { return wait.stage == stage; });
      if (seen != found.waits.end()) {
        found.waits.erase(found.waits.begin(), seen);
        return found;
      }
      const auto message = received_by(schedule_, static_cast<int>(stage), next(stage));
      const Wait wait{stage, walk_.next(stage), sender(message.value()), static_cast<std::size_t>(message->from)};
      const auto& sent = sides_[wait.on].sent[kind(*message)];
      if (std::find(sent.begin(), sent.end(), *message) != sent.end())
        return {.waits = {wait}, .sent_first = sender(*head(*message))};
      // Every action occurs, so a message that is not sent yet keeps its sender from being finished.
      TRI_CHECK(!walk_.finished(wait.on), "stage {} never runs {}", wait.on, to_text(wait.needed));
      found.waits.push_back(wait);
      stage = wait.on;
    }
  }

  const Schedule& schedule_;
  ScheduleWalk walk_;
  std::vector<Side> sides_;
};

}  // namespace

std::optional<Deadlock> find_deadlock(const Schedule& schedule) {
  Run run(schedule);
  run.run();
  return run.stopped();
}

}  // namespace trireme::program
