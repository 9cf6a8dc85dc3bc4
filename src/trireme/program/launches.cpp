#include "trireme/program/launches.h"

namespace trireme::program {

using ir::index;

std::vector<double> launch_savings(const Program& program, const LaunchCosts& costs) {
  std::vector<double> saved(program.instructions.size(), 0);
  std::vector<bool> with_another(program.instructions.size(), false);
  for (const LaunchGroup& group : program.launch_groups)
    for (std::int32_t i = group.first + 1; i < group.last; ++i) {
      with_another[index(i)] = true;
      saved[index(i)] = costs.launch;
    }
  for (const CaptureRegion& region : program.capture_regions) {
    double replay = costs.graph_launch;
    for (std::int32_t i = region.first; i < region.last; ++i) {
      const Instruction& instruction = program.instructions[index(i)];
      const bool launched = (instruction.kind == Instruction::Kind::launch && !instruction.on_host) ||
                            instruction.kind == Instruction::Kind::copy;
      if (!launched || with_another[index(i)]) continue;
      saved[index(i)] = costs.launch - costs.graph_kernel - replay;
      replay = 0;
    }
  }
  return saved;
}

}  // namespace trireme::program
