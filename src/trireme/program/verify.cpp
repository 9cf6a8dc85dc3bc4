#include "trireme/program/verify.h"

#include "trireme/core/error.h"
#include "trireme/program/capture_regions.h"
#include "trireme/program/launch_groups.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

using ir::index;

void verify_operand(const Program& program, const Operand& o, std::size_t i) {
  if (o.buffer == kNone) return;
  if (index(o.buffer) >= program.buffers.size())
    fail("{} names buffer {}, which does not exist", describe(program, i), o.buffer);
  const Buffer& buffer = program.buffers[index(o.buffer)];
  if (o.offset + o.extent() > buffer.bytes)
    fail("{} reaches beyond buffer '{}' ({} of {} bytes)", describe(program, i), buffer.name, o.offset + o.extent(),
         buffer.bytes);
  if (o.place.axis != kNone && index(o.place.axis) >= program.mesh.axes.size())
    fail("{} uses '{}' by the rank's place along an axis that the mesh '{}' has not", describe(program, i), buffer.name,
         program.mesh.str());
  if (o.value != kNone && index(o.value) >= program.values.size())
    fail("{} names value {} of '{}', which does not exist", describe(program, i), o.value, buffer.name);
}

void verify_instruction(const Program& program, std::size_t i) {
  const Instruction& instruction = program.instructions[i];
  const bool has_op = instruction.kind == Instruction::Kind::launch || instruction.communicates();
  if (has_op != (instruction.op != nullptr))
    fail("instruction {} '{}' has {} op", i, instruction.name, has_op ? "no" : "an");
  const bool combines = instruction.kind == Instruction::Kind::collective && !program.values.empty();
  if (instruction.of.size() != (combines ? instruction.outputs.size() : 0))
    fail("{} names {} of the {} values that it makes with other ranks", describe(program, i), instruction.of.size(),
         combines ? instruction.outputs.size() : 0);
  if (instruction.stream < 0) fail("{} is on stream {}", describe(program, i), instruction.stream);
  for (const Operand& o : instruction.inputs) verify_operand(program, o, i);
  for (const Operand& o : instruction.outputs) {
    if (o.buffer == kNone) fail("{} has an output without a buffer", describe(program, i));
    verify_operand(program, o, i);
  }
  verify_operand(program, instruction.workspace, i);
}

void verify_events(const Program& program) {
  std::vector<std::size_t> recorder(index(program.events()), program.instructions.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const std::int32_t event : instruction.waits)
      if (index(event) >= recorder.size() || recorder[index(event)] == program.instructions.size())
        fail("{} waits for event {}, which no instruction before it records", describe(program, i), event);
    if (instruction.records == kNone) continue;
    std::size_t& from = recorder[index(instruction.records)];
    if (from != program.instructions.size())
      fail("event {} is recorded by {} and by {}", instruction.records, describe(program, from), describe(program, i));
    from = i;
  }
}

}  // namespace

void verify(const Program& program) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) verify_instruction(program, i);
  verify_events(program);
  for (const NamedOutput& output : program.outputs)
    if (index(output.operand.buffer) >= program.buffers.size())
      fail("output '{}' of micro-batch {} has no buffer", output.name, output.micro);
  verify_launch_groups(program);
  verify_capture_regions(program);
}

}  // namespace trireme::program
