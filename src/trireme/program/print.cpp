#include "trireme/program/print.h"

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::program {
namespace {

std::string operand_text(const Program& program, const Operand& o) {
  if (o.buffer == kNone) return "_";
  const Buffer& b = program.buffers[static_cast<std::size_t>(o.buffer)];
  const std::string own =
      o.place.axis == kNone
          ? ""
          : fmt::format("+{}·{}", o.place.stride, program.mesh.axes[static_cast<std::size_t>(o.place.axis)].name);
  return fmt::format("{} {}@{}{}{}", b.name, o.type.str(), b.tier == 0 ? "" : tier_name(b.tier) + std::string(":"),
                     b.offset + o.offset, own);
}

std::string operands_text(const Program& program, const std::vector<Operand>& operands) {
  std::string out;
  for (const Operand& o : operands) out += (out.empty() ? "" : ", ") + operand_text(program, o);
  return out;
}

}  // namespace

std::string kind_of(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::launch:
    case Instruction::Kind::collective:
    case Instruction::Kind::push:
    case Instruction::Kind::pull: return instruction.op->name;
    case Instruction::Kind::input: return "input";
    case Instruction::Kind::store: return "store";
    case Instruction::Kind::load: return "load";
    case Instruction::Kind::copy: break;
  }
  return "copy";
}

std::string describe(const Program& program, std::size_t i) {
  const Instruction& instruction = program.instructions[i];
  return fmt::format("instruction {} ({} '{}', micro-batch {})", i, kind_of(instruction), instruction.name,
                     instruction.micro);
}

std::string to_text(const Program& program) {
  std::string out =
      fmt::format("program {}: {} instructions, {} micro-batch{}, {} thread{}, arena {} B (state {} B)", program.name,
                  format_count(program.instructions.size()), program.micro_batches,
                  program.micro_batches == 1 ? "" : "es", program.threads, program.threads == 1 ? "" : "s",
                  format_count(program.arena_bytes), format_count(program.state_bytes));
  for (int tier = 1; tier < kTiers; ++tier)
    if (program.bytes_in(tier) > 0)
      out += fmt::format(", {} {} B (state {} B)", tier_name(tier), format_count(program.bytes_in(tier)),
                         format_count(program.state_bytes_in(tier)));
  out += "\n";
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    out += fmt::format("{:>6}  m{} {:<15} {:<22} {}", i, instruction.micro, ir::name_of(instruction.phase),
                       kind_of(instruction), instruction.name);
    if (!instruction.inputs.empty()) out += " ← " + operands_text(program, instruction.inputs);
    out += fmt::format(" {} {}", instruction.accumulate ? "⇒+" : "→", operands_text(program, instruction.outputs));
    if (instruction.workspace.buffer != kNone)
      out += fmt::format(" [workspace {} B@{}]", instruction.workspace.type.bytes(),
                         program.buffers[static_cast<std::size_t>(instruction.workspace.buffer)].offset);
    if (instruction.on_host) out += " on_host";
    if (instruction.stream != 0) out += fmt::format(" stream {}", instruction.stream);
    for (const std::int32_t event : instruction.waits) out += fmt::format(" waits e{}", event);
    if (instruction.records != kNone) out += fmt::format(" records e{}", instruction.records);
    out += "\n";
  }
  for (const NamedOutput& output : program.outputs)
    out += fmt::format("output {} (micro-batch {}) = {}\n", output.name, output.micro,
                       operand_text(program, output.operand));
  return out;
}

}  // namespace trireme::program
