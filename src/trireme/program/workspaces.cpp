#include "trireme/program/workspaces.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/program/lifetimes.h"

namespace trireme::program {
namespace {

std::size_t workspace_bytes(const Program& program, const Instruction& instruction) {
  ir::Types inputs;
  ir::Types outputs;
  for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
  for (const Operand& o : instruction.outputs) outputs.push_back(o.type);
  const ir::KernelSpec spec{inputs, outputs, instruction.attributes, program.threads, instruction.accumulate};
  const device::Kind device = instruction.on_host ? device::Kind::cpu : program.device;
  const auto kernel = instruction.op->kernels.find(device);
  if (kernel == instruction.op->kernels.end() || !kernel->second.supports(spec)) {
    std::vector<std::string> types;
    for (const TensorType& t : inputs)
      if (t.present) types.push_back(t.str());
    fail("no {} kernel for {}({})", device::name_of(device), instruction.op->name, fmt::join(types, ", "));
  }
  return kernel->second.workspace ? kernel->second.workspace(spec) : 0;
}

}  // namespace

void add_workspaces(Program& program) {
  const std::vector<std::size_t> after = happens_after(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& instruction = program.instructions[i];
    if (instruction.kind != Instruction::Kind::launch) continue;
    std::size_t bytes = 0;
    try {
      bytes = workspace_bytes(program, instruction);
    } catch (Error& e) {
      throw e.within(fmt::format("lowering {} '{}'", instruction.op->name, instruction.name));
    }
    if (bytes == 0) continue;
    const TensorType type{DType::u8, {static_cast<std::int64_t>(bytes)}};
    const auto at = static_cast<std::int32_t>(i);
    instruction.workspace = {static_cast<BufferId>(program.buffers.size()), type};
    program.buffers.push_back(
        {instruction.name, bytes, 0, Category::workspace, kNone, at, static_cast<std::int32_t>(after[i])});
    if (instruction.on_host) program.buffers.back().tier = kHostTier;
  }
}

}  // namespace trireme::program
