#include "trireme/planner/predict.h"

#include <algorithm>
#include <vector>

#include "trireme/program/launches.h"

namespace trireme::planner {

double nominal_seconds(const program::Instruction& instruction, const cost::Rates& rates) {
  ir::Types inputs;
  ir::Types outputs;
  for (const program::Operand& o : instruction.inputs) inputs.push_back(o.type);
  for (const program::Operand& o : instruction.outputs) outputs.push_back(o.type);
  if (instruction.on_host) return rates.host_seconds(instruction.op->cost(inputs, outputs, instruction.attributes));
  if (instruction.kind == program::Instruction::Kind::launch)
    return rates.compute_seconds(instruction.op->cost(inputs, outputs, instruction.attributes));
  if (instruction.kind == program::Instruction::Kind::store || instruction.kind == program::Instruction::Kind::load)
    return rates.move_seconds(outputs.front().bytes());
  const double bytes = outputs.empty() ? 0 : static_cast<double>(outputs.front().bytes());
  return rates.compute_seconds({.bytes_read = bytes, .bytes_written = bytes});
}

double nominal_seconds(const program::Program& program) {
  const cost::Rates rates = cost::Rates::of(program.device);
  std::vector<double> stream(static_cast<std::size_t>(program.streams()), 0);
  std::vector<double> event(static_cast<std::size_t>(program.events()), 0);
  const std::vector<double> saved =
      program::launch_savings(program, {rates.launch, rates.graph_launch, rates.graph_kernel});
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    // What shares the compute stream's units takes its time from it.
    const std::int32_t queue = instruction.stream == program::kGradientStream ? 0 : instruction.stream;
    double& now = stream[static_cast<std::size_t>(queue)];
    for (const std::int32_t e : instruction.waits) now = std::max(now, event[static_cast<std::size_t>(e)]);
    now += nominal_seconds(instruction, rates) - saved[i];
    if (instruction.records != program::kNone) event[static_cast<std::size_t>(instruction.records)] = now;
  }
  return *std::max_element(stream.begin(), stream.end());
}

}  // namespace trireme::planner
