#include "trireme/compiler/async_role.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/split.h"
#include "trireme/passes/state_graphs.h"
#include "trireme/program/check_together.h"
#include "trireme/program/concatenate.h"

namespace trireme::compiler {

program::LowerOptions async_options(const AsyncStage& stage, program::LowerOptions options, const ir::Module& module,
                                    AsyncStage::Part part, int steps, const std::string& update) {
  options.calls = stage.calls(module, part, steps, update);
  options.sums_begun = stage.sums_begun(part);
  return options;
}

std::vector<StepProgram> lower_async_stage(RoleBuilder& builder, Role& role, const AsyncStage& stage,
                                           const program::LowerOptions& options) {
  if (role.module.has_graph(passes::kTies))
    refuse(
        "parallel.pipeline: stages that update at their own pace cannot share a table; the nearest is "
        "parallel.pipeline = \"1f1b\", or a table of its own for each (of gpt2 and llama model.tie_embeddings = "
        "false)");
  using Part = AsyncStage::Part;
  role.in_flight = {stage.ahead, stage.period(), !stage.delayed};
  const auto lower_all = [&](const std::string& prefix, const std::string& update) {
    const auto lower = [&](const char* name, Part part, int steps) {
      const program::LowerOptions own = async_options(stage, options, role.module, part, steps, update);
      if (!own.calls.empty()) builder.lower(prefix + slot_program(name, steps, stage.period()), "micro", own);
    };
    lower("fill", Part::fill, 0);
    // As many steps as there are programs, none of which is the first.
    for (int steps = stage.period(); steps < 2 * stage.period(); ++steps) {
      lower("step", Part::step, steps);
      lower("drain", Part::drain, steps);
    }
  };
  if (role.module.has_graph(passes::kWarmUpdate)) lower_all(kWarmPrograms, passes::kWarmUpdate);
  lower_all("", "update");
  // Run while nothing is in flight.
  for (const char* graph : {passes::kPrune, passes::kRemember, passes::kRewind}) builder.lower(graph, graph);
  return {{"fill", 0}, {"step", 1}};
}

void expect_same_order(const Compiled& c, const std::string& prefix) {
  for (const Role& role : c.roles)
    for (const char* part : {"step", "drain"}) {
      const program::Program* first = role.find(prefix + part);
      for (int slot = 1; slot < role.in_flight->period && first != nullptr; ++slot)
        if (const program::Program& other = role.program(prefix + slot_program(part, slot, role.in_flight->period));
            program::order_digest(other) != program::order_digest(*first))
          fail("'{}' and '{}' of {} communicate or wait in different orders", first->name, other.name, role.name);
    }
}

std::vector<program::Program> async_rounds(const Compiled& c, int steps, const std::string& prefix) {
  if (c.roles.front().find(prefix + "fill") == nullptr) return {};
  std::vector<program::Program> rounds;
  for (const Role& role : c.roles) {
    const int own = role.in_flight->period;
    std::vector<const program::Program*> all = {&role.program(prefix + "fill")};
    for (int step = 1; step < steps; ++step) all.push_back(&role.program(prefix + slot_program("step", step, own)));
    if (const auto* drain = role.find(prefix + slot_program("drain", steps, own))) all.push_back(drain);
    rounds.push_back(program::concatenated(all));
  }
  return rounds;
}

}  // namespace trireme::compiler
