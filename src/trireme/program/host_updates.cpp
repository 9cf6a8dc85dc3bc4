#include "trireme/program/host_updates.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "trireme/program/stream_order.h"

namespace trireme::program {
namespace {

// What moves up.
std::vector<bool> movable(const Program& program) {
  std::unordered_set<BufferId> read_on_host;
  std::unordered_set<BufferId> made_on_host;
  for (const Instruction& i : program.instructions) {
    if (!i.on_host) continue;
    for (const Operand& o : i.inputs) read_on_host.insert(o.buffer);
    for (const Operand& o : i.outputs) made_on_host.insert(o.buffer);
  }
  std::vector<bool> moves(program.instructions.size(), false);
  std::unordered_set<BufferId> leaves;
  for (std::size_t k = 0; k < moves.size(); ++k) {
    const Instruction& i = program.instructions[k];
    if (i.phase != ir::Phase::update) continue;
    const bool feeds = i.kind == Instruction::Kind::store && read_on_host.contains(i.outputs.front().buffer);
    if (feeds) leaves.insert(i.inputs.front().buffer);
    moves[k] =
        feeds || i.on_host || (i.kind == Instruction::Kind::load && made_on_host.contains(i.inputs.front().buffer));
  }
  for (std::size_t k = 0; k < moves.size(); ++k) {
    const Instruction& i = program.instructions[k];
    if (i.kind != Instruction::Kind::launch || i.on_host || i.phase != ir::Phase::update || i.inputs.empty()) continue;
    moves[k] = std::all_of(i.inputs.begin(), i.inputs.end(),
                           [&](const Operand& o) { return o.buffer == kNone || leaves.contains(o.buffer); });
  }
  return moves;
}

// By instruction: the one, of those that stay, that it comes right before. Those that stay come before themselves.
std::vector<std::size_t> places(const Program& program, const std::vector<bool>& moves) {
  struct Touched {
    std::size_t read = 0;
    std::size_t written = 0;
  };
  std::unordered_map<BufferId, Touched> touched;
  std::vector<std::size_t> at(moves.size());
  for (std::size_t k = 0; k < moves.size(); ++k) {
    const Instruction& i = program.instructions[k];
    std::size_t earliest = 0;
    for (const Operand& o : i.inputs) earliest = std::max(earliest, touched[o.buffer].written);
    for (const Operand& o : i.outputs)
      earliest = std::max({earliest, touched[o.buffer].written, touched[o.buffer].read});
    at[k] = moves[k] ? earliest : k;
    const std::size_t done = moves[k] ? at[k] : k + 1;
    for (const Operand& o : i.inputs) touched[o.buffer].read = std::max(touched[o.buffer].read, done);
    for (const Operand& o : i.outputs) touched[o.buffer].written = std::max(touched[o.buffer].written, done);
  }
  return at;
}

bool uses_host(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& i) { return i.on_host; });
}

}  // namespace

void start_host_updates_early(Program& program) {
  std::vector<Instruction>& all = program.instructions;
  if (!uses_host(program)) return;
  const std::vector<bool> moves = movable(program);
  const std::vector<std::size_t> at = places(program, moves);
  std::vector<Instruction> fresh;
  fresh.reserve(all.size());
  ir::Phase phase = ir::Phase::forward;  // of those that stay
  for (const std::size_t k : moved_order(at, moves)) {
    Instruction& i = all[k];
    if (!moves[k])
      phase = i.phase;
    else if (phase == ir::Phase::input_gradient || phase == ir::Phase::weight_gradient)
      i.phase = phase;
    fresh.push_back(std::move(i));
  }
  all = std::move(fresh);
}

void order_host_updates(Program& program) {
  if (uses_host(program)) order_stream(program, kHostStream);
}

}  // namespace trireme::program
