#include "trireme/program/lifetimes.h"

#include <algorithm>

#include "trireme/program/happens_before.h"

namespace trireme::program {
namespace {

using ir::index;

bool read_twice(const Instruction& instruction, BufferId buffer) {
  int uses = 0;
  for (const Operand& o : instruction.inputs) uses += o.buffer == buffer ? 1 : 0;
  for (const Operand& o : instruction.outputs) uses += o.buffer == buffer ? 1 : 0;
  return uses > 1;
}

HappensBefore order_of(const Program& program) {
  HappensBefore order(program);
  std::vector<std::size_t> recorder(index(program.events()));
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const std::int32_t event : instruction.waits) order.wait(i, recorder[index(event)]);
    order.start(i);
    if (instruction.records != kNone) recorder[index(instruction.records)] = i;
  }
  return order;
}

// By buffer: whether another instruction may still touch it when the last one runs. It lives to the end, which is not
// to say that it dies there.
std::vector<bool> outlasting(const Program& program) {
  std::vector<bool> outlasts(program.buffers.size(), false);
  const HappensBefore order = order_of(program);
  for (std::size_t i = 0; i + 1 < program.instructions.size(); ++i) {
    if (order.before(i, program.instructions.size() - 1)) continue;
    for (const auto* operands : {&program.instructions[i].inputs, &program.instructions[i].outputs})
      for (const Operand& o : *operands)
        if (o.buffer != kNone) outlasts[index(o.buffer)] = true;
  }
  return outlasts;
}

}  // namespace

std::vector<std::size_t> happens_after(const Program& program) {
  const HappensBefore order = order_of(program);
  std::vector<std::size_t> compute;  // of the compute stream
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if (program.instructions[i].stream == 0) compute.push_back(i);
  std::vector<std::size_t> done(program.instructions.size());
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (program.instructions[i].stream == 0) {
      done[i] = i;
      continue;
    }
    const auto first =
        std::partition_point(compute.begin(), compute.end(), [&](std::size_t c) { return !order.before(i, c); });
    done[i] = first == compute.end() ? done.size() - 1 : *first;
  }
  return done;
}

void find_lifetimes(Program& program) {
  for (Buffer& b : program.buffers) b.first = b.last = kNone;
  const auto touch = [&](const Operand& operand, std::size_t i) {
    if (operand.buffer == kNone) return;
    Buffer& b = program.buffers[index(operand.buffer)];
    if (b.first == kNone) b.first = static_cast<std::int32_t>(i);
    b.last = std::max(b.last, static_cast<std::int32_t>(i));
  };
  const std::vector<std::size_t> done = happens_after(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const auto* operands : {&instruction.inputs, &instruction.outputs})
      for (const Operand& o : *operands) {
        touch(o, i);
        touch(o, done[i]);
      }
    touch(instruction.workspace, i);
    touch(instruction.workspace, done[i]);
  }
  for (const NamedOutput& output : program.outputs)
    if (Buffer& b = program.buffers[index(output.operand.buffer)]; b.first != kNone)
      b.last = static_cast<std::int32_t>(program.instructions.size()) - 1;
}

void reuse_dying_inputs(Program& program) {
  const auto is_state = [&](BufferId buffer) { return index(buffer) < program.states; };
  std::vector<bool> kept(program.buffers.size(), false);
  for (const NamedOutput& output : program.outputs) kept[index(output.operand.buffer)] = true;
  std::vector<bool> outlasts = outlasting(program);
  std::vector<BufferId> now(program.buffers.size());
  for (std::size_t i = 0; i < now.size(); ++i) now[i] = static_cast<BufferId>(i);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& instruction = program.instructions[i];
    for (Operand& o : instruction.inputs)
      if (o.buffer != kNone) o.buffer = now[index(o.buffer)];
    for (Operand& o : instruction.outputs) o.buffer = now[index(o.buffer)];
    if (instruction.op == nullptr || instruction.accumulate) continue;
    for (const auto& [out, in] : instruction.op->traits.in_place) {
      if (index(out) >= instruction.outputs.size() || index(in) >= instruction.inputs.size()) continue;
      Operand& output = instruction.outputs[index(out)];
      const Operand& input = instruction.inputs[index(in)];
      if (input.buffer == kNone || input.buffer == output.buffer) continue;
      Buffer& dying = program.buffers[index(input.buffer)];
      Buffer& born = program.buffers[index(output.buffer)];
      const bool fits = !is_state(input.buffer) && !is_state(output.buffer) && input.offset == 0 &&
                        input.place.axis == kNone && output.place.axis == kNone &&
                        dying.last == static_cast<std::int32_t>(i) && born.first == static_cast<std::int32_t>(i) &&
                        dying.bytes == born.bytes && output.type.bytes() == input.type.bytes();
      if (!fits || kept[index(input.buffer)] || read_twice(instruction, input.buffer)) continue;
      if (i + 1 == program.instructions.size() && outlasts[index(input.buffer)]) continue;
      if (kept[index(output.buffer)]) kept[index(input.buffer)] = true;
      if (outlasts[index(output.buffer)]) outlasts[index(input.buffer)] = true;
      dying.last = born.last;
      dying.alignment = std::max(dying.alignment, born.alignment);
      born.first = born.last = kNone;
      now[index(output.buffer)] = input.buffer;
      output.buffer = input.buffer;
    }
  }
  for (NamedOutput& output : program.outputs) output.operand.buffer = now[index(output.operand.buffer)];
}

}  // namespace trireme::program
