#pragma once
#include <cstdint>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// What an instruction touches: f(operand, whether it is written).
template <class F>
void for_each_operand(const Instruction& i, F&& f) {
  for (const Operand& o : i.inputs)
    if (o.buffer != kNone) f(o, false);
  for (const Operand& o : i.outputs) f(o, true);
  if (i.workspace.buffer != kNone) f(i.workspace, true);
}

// The order of instructions of which those that `moves` names go to places `at`, before what stands there; the others
// have their own places.
std::vector<std::size_t> moved_order(const std::vector<std::size_t>& at, const std::vector<bool>& moves);

// Adds the events that a stream other than the compute stream needs. Each of its instructions waits for the compute
// instruction before it: memory that is free there is free here too. And of any two instructions that touch the same
// bytes, one of them writing and one of them on this stream, the later waits for the earlier. No wait is added for what
// other waits already order.
void order_stream(Program& program, std::int32_t stream);

}  // namespace trireme::program
