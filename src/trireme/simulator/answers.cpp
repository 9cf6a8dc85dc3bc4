#include "trireme/simulator/answers.h"

namespace trireme::simulator {

using program::Instruction;

Answers answering(const program::Program& update, std::span<const program::Program* const> workers, int place) {
  Answers answers{update, {}};
  std::vector<Instruction>& instructions = answers.program.instructions;
  instructions.clear();
  const auto answer = [&](Instruction::Kind kind) {
    for (std::size_t w = 0; w < workers.size(); ++w)
      for (std::size_t i = 0; i < workers[w]->instructions.size(); ++i) {
        const Instruction& message = workers[w]->instructions[i];
        if (message.kind != kind || message.attributes.integer("peer") != place) continue;
        Instruction own = message;
        own.inputs.clear();
        own.outputs.clear();
        own.waits.clear();
        own.records = program::kNone;
        own.stream = 0;
        own.phase = ir::Phase::update;
        answers.all.push_back({instructions.size(), w, i});
        instructions.push_back(std::move(own));
      }
  };
  answer(Instruction::Kind::push);
  const auto received = static_cast<std::int32_t>(instructions.size());
  for (program::LaunchGroup& group : answers.program.launch_groups) {
    group.first += received;
    group.last += received;
  }
  for (program::CaptureRegion& region : answers.program.capture_regions) {
    region.first += received;
    region.last += received;
  }
  instructions.insert(instructions.end(), update.instructions.begin(), update.instructions.end());
  answer(Instruction::Kind::pull);
  return answers;
}

}  // namespace trireme::simulator
