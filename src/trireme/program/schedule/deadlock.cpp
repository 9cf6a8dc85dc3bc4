#include "trireme/program/schedule/deadlock.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/program/schedule/messages.h"

namespace trireme::program {
namespace {

class Run {
 public:
  explicit Run(const Schedule& schedule) : schedule_(schedule), sides_(schedule.stages.size()) {}

  // Until no stage can go on.
  void run() {
    const std::size_t stages = sides_.size();
    std::vector<std::size_t> awake(stages);  // stages that may have something to do
    std::iota(awake.begin(), awake.end(), 0);
    while (!awake.empty()) {
      const std::size_t stage = awake.back();
      awake.pop_back();
      bool progress = false;
      while (step(stage)) progress = true;
      if (progress) awake.insert(awake.end(), {(stage + stages - 1) % stages, (stage + 1) % stages});
    }
  }

  std::optional<Deadlock> stopped() const {
    for (std::size_t stage = 0; stage < sides_.size(); ++stage)
      if (!finished(stage)) return explain(stage);
    return std::nullopt;
  }

 private:
  using Kind = StageMessage::Kind;

  // A stage: how far it is, and what it has sent that is not received yet, by kind.
  struct Side {
    std::size_t next = 0;
    std::array<std::vector<StageMessage>, 2> sent = {};
    std::array<std::size_t, 2> received = {};
  };

  bool finished(std::size_t stage) const { return sides_[stage].next == schedule_.stages[stage].size(); }
  const Action& next(std::size_t stage) const { return schedule_.stages[stage][sides_[stage].next]; }

  // The message at the head of a sender's stream; null: there is none.
  const StageMessage* head(const StageMessage& like) const {
    const Side& side = sides_[static_cast<std::size_t>(like.from)];
    const auto kind = static_cast<std::size_t>(like.kind);
    return side.received[kind] < side.sent[kind].size() ? &side.sent[kind][side.received[kind]] : nullptr;
  }

  bool step(std::size_t stage) {
    if (finished(stage)) return false;
    const Action& action = next(stage);
    if (const auto message = received_by(schedule_, static_cast<int>(stage), action)) {
      const StageMessage* first = head(*message);
      if (first == nullptr || *first != *message) return false;
      ++sides_[static_cast<std::size_t>(message->from)].received[static_cast<std::size_t>(message->kind)];
    }
    if (const auto message = sent_by(schedule_, static_cast<int>(stage), action))
      sides_[stage].sent[static_cast<std::size_t>(message->kind)].push_back(*message);
    ++sides_[stage].next;
    return true;
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
      const Wait wait{stage, sides_[stage].next, sender(message.value()), static_cast<std::size_t>(message->from)};
      const auto& sent = sides_[wait.on].sent[static_cast<std::size_t>(message->kind)];
      if (std::find(sent.begin(), sent.end(), *message) != sent.end())
        return {.waits = {wait}, .sent_first = sender(*head(*message))};
      // Every action occurs, so a message that is not sent yet keeps its sender from being finished.
      TRI_CHECK(!finished(wait.on), "stage {} never runs {}", wait.on, to_text(wait.needed));
      found.waits.push_back(wait);
      stage = wait.on;
    }
  }

  const Schedule& schedule_;
  std::vector<Side> sides_;
};

}  // namespace

std::optional<Deadlock> find_deadlock(const Schedule& schedule) {
  Run run(schedule);
  run.run();
  return run.stopped();
}

}  // namespace trireme::program
