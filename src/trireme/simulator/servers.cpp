#include "trireme/simulator/servers.h"

namespace trireme::simulator {

using program::Instruction;

Serving serving(const program::Program& update, std::span<const program::Program* const> workers, int place) {
  Serving all{update, {}};
  all.program.instructions.clear();
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
        all.answers.push_back({all.program.instructions.size(), w, i});
        all.program.instructions.push_back(std::move(own));
      }
  };
  answer(Instruction::Kind::push);
  all.program.instructions.insert(all.program.instructions.end(), update.instructions.begin(),
                                  update.instructions.end());
  answer(Instruction::Kind::pull);
  return all;
}

}  // namespace trireme::simulator
