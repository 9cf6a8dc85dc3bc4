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
  const std::string tier = b.tier == 0 ? "" : tier_name(b.tier) + std::string(":");
  if (program.is_placed()) return fmt::format("{} {}@{}{}{}", b.name, o.type.str(), tier, b.offset + o.offset, own);
  const std::string offset = o.offset == 0 ? "" : fmt::format("+{}", o.offset);
  return fmt::format("{} {}#{}{}{}{}", b.name, o.type.str(), tier, o.buffer, offset, own);
}

// "[workspace 512 B@1024]".
std::string workspace_text(const Program& program, const Operand& o) {
  if (o.buffer == kNone) return "";
  const std::string where = program.is_placed()
                                ? fmt::format("@{}", program.buffers[static_cast<std::size_t>(o.buffer)].offset)
                                : fmt::format("#{}", o.buffer);
  return fmt::format(" [workspace {} B{}]", o.type.bytes(), where);
}

// Before they are placed: what there is to place. States have no lifetime.
std::string buffers_text(const Program& program) {
  std::string out;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    out += fmt::format("#{} {} {} B {}", b, buffer.name, buffer.bytes, name_of(buffer.category));
    if (buffer.tier != 0) out += fmt::format(" on the {}", tier_name(buffer.tier));
    if (buffer.alignment == kPage) out += " in pages";
    if (buffer.state != kNone)
      out += " state";
    else if (buffer.first != kNone)
      out += fmt::format(" lives {}–{}", buffer.first, buffer.last);
    out += "\n";
  }
  return out;
}

std::string events_text(const char* what, const std::vector<std::int32_t>& events) {
  std::string out;
  for (const std::int32_t event : events) out += fmt::format(" {} e{}", what, event);
  return out;
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
    case Instruction::Kind::pull:
    case Instruction::Kind::send:
    case Instruction::Kind::receive: return instruction.op->name;
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
      fmt::format("program {}: {} instructions, {} micro-batch{}, {} thread{}", program.name,
                  format_count(program.instructions.size()), program.micro_batches,
                  program.micro_batches == 1 ? "" : "es", program.threads, program.threads == 1 ? "" : "s");
  out += program.is_placed() ? fmt::format(", arena {} B (state {} B)", format_count(program.arena_bytes),
                                           format_count(program.state_bytes))
                             : fmt::format(", not placed (state {} B)", format_count(program.state_bytes));
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
    out += workspace_text(program, instruction.workspace);
    if (instruction.on_host) out += " on_host";
    if (instruction.stream != 0) out += fmt::format(" stream {}", instruction.stream);
    out += events_text("waits", instruction.waits);
    if (instruction.records != kNone) out += fmt::format(" records e{}", instruction.records);
    out += "\n";
  }
  for (const NamedOutput& output : program.outputs)
    out += fmt::format("output {} (micro-batch {}) = {}\n", output.name, output.micro,
                       operand_text(program, output.operand));
  if (!program.is_placed()) out += buffers_text(program);
  for (const LaunchGroup& group : program.launch_groups)
    out += fmt::format("launched together: {}–{} ({})\n", group.first, group.last - 1,
                       kind_of(program.instructions[static_cast<std::size_t>(group.first)]));
  for (const CaptureRegion& region : program.capture_regions)
    out += fmt::format("captured: {}–{}{}{}\n", region.first, region.last - 1, events_text("waits", region.waits),
                       events_text("records", region.records));
  return out;
}

}  // namespace trireme::program
