#include "trireme/program/weight_gradients.h"

#include <algorithm>
#include <deque>

#include "trireme/program/stream_order.h"

namespace trireme::program {
namespace {

bool moves(const Instruction& i) {
  return i.kind == Instruction::Kind::launch && i.phase == ir::Phase::weight_gradient && i.stream == 0;
}

void wait(Instruction& instruction, std::int32_t event) {
  if (std::find(instruction.waits.begin(), instruction.waits.end(), event) == instruction.waits.end())
    instruction.waits.push_back(event);
}

}  // namespace

void overlap_weight_gradients(Program& program, const WeightGradientOptions& options) {
  if (!options.overlap || std::none_of(program.instructions.begin(), program.instructions.end(), moves)) return;
  std::int32_t events = program.events();
  std::vector<std::int32_t> passed_on;  // what the compute stream would have waited for in their place
  std::deque<std::int32_t> under_way;   // events of those that it has not waited for
  for (Instruction& instruction : program.instructions) {
    if (moves(instruction)) {
      instruction.stream = kGradientStream;
      passed_on.insert(passed_on.end(), instruction.waits.begin(), instruction.waits.end());
      if (instruction.records == kNone) instruction.records = events++;
      under_way.push_back(instruction.records);
      continue;
    }
    if (instruction.stream != 0) continue;
    for (const std::int32_t event : passed_on) wait(instruction, event);
    passed_on.clear();
    if (under_way.size() <= options.lag) continue;
    // They are done in their order: the last of those that must be is enough.
    under_way.erase(under_way.begin(), under_way.end() - static_cast<std::ptrdiff_t>(options.lag) - 1);
    wait(instruction, under_way.front());
    under_way.pop_front();
  }
  order_stream(program, kGradientStream);
}

}  // namespace trireme::program
