#include "trireme/program/schedule/messages.h"

namespace trireme::program {
namespace {

struct Part {
  int stage = 0;
  int chunk = 0;
};

// The part of the model that follows (by = 1) or precedes (by = -1), if there is one.
std::optional<Part> neighbour(const Schedule& schedule, Part part, int by) {
  const int stages = schedule.stage_count();
  const int place = part.chunk * stages + part.stage + by;
  if (place < 0 || place >= stages * schedule.chunks) return std::nullopt;
  return Part{place % stages, place / stages};
}

std::optional<StageMessage::Kind> kind_of(const Action& action) {
  if (action.kind == Action::Kind::forward) return StageMessage::Kind::activation;
  if (action.kind == Action::Kind::backward) return StageMessage::Kind::gradient;
  return std::nullopt;
}

}  // namespace

std::optional<StageMessage> received_by(const Schedule& schedule, int stage, const Action& action) {
  const std::optional<StageMessage::Kind> kind = kind_of(action);
  if (!kind || schedule.stage_count() == 1) return std::nullopt;
  const auto from = neighbour(schedule, {stage, action.chunk}, *kind == StageMessage::Kind::activation ? -1 : 1);
  if (!from) return std::nullopt;
  return StageMessage{*kind, from->stage, stage, from->chunk, action.micro};
}

std::optional<StageMessage> sent_by(const Schedule& schedule, int stage, const Action& action) {
  const std::optional<StageMessage::Kind> kind = kind_of(action);
  if (!kind || schedule.stage_count() == 1) return std::nullopt;
  const auto to = neighbour(schedule, {stage, action.chunk}, *kind == StageMessage::Kind::activation ? 1 : -1);
  if (!to) return std::nullopt;
  return StageMessage{*kind, stage, to->stage, action.chunk, action.micro};
}

Action receiver(const Schedule& schedule, const StageMessage& message) {
  const bool activation = message.kind == StageMessage::Kind::activation;
  const auto to = neighbour(schedule, {message.from, message.chunk}, activation ? 1 : -1);
  return {activation ? Action::Kind::forward : Action::Kind::backward, message.micro, to.value().chunk};
}

Action sender(const StageMessage& message) {
  return {message.kind == StageMessage::Kind::activation ? Action::Kind::forward : Action::Kind::backward,
          message.micro, message.chunk};
}

std::vector<std::vector<Transfer>> transfers(const Schedule& schedule, const StageActions& actions) {
  std::vector<std::vector<Transfer>> all(actions.size());
  for (std::size_t stage = 0; stage < actions.size(); ++stage)
    for (std::size_t a = 0; a < actions[stage].size(); ++a) {
      const Action& action = actions[stage][a];
      if (const auto message = received_by(schedule, static_cast<int>(stage), action))
        all[stage].push_back({*message, false, a});
      if (const auto message = sent_by(schedule, static_cast<int>(stage), action))
        all[stage].push_back({*message, true, a});
    }
  return all;
}

}  // namespace trireme::program
