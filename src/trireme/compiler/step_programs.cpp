#include "trireme/compiler/step_programs.h"

#include <map>

#include "trireme/compiler/async_role.h"
#include "trireme/compiler/lowering.h"
#include "trireme/passes/split.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::compiler {
namespace {

program::LowerOptions step_options(const Graphs& graphs, const Plan& plan) {
  program::LowerOptions lowering = lower_options(plan);
  lowering.before_tail = {passes::kTies};
  lowering.tail = "update";
  lowering.micro_batches = graphs.micro_batches;
  return lowering;
}

// Steps that prune have programs of their own, and so has the one after which the weights are remembered.
std::vector<StepProgram> lower_pruning(RoleBuilder& builder, const passes::Prune::Options& prune,
                                       program::LowerOptions step) {
  step.before_tail.emplace_back(passes::kPrune);
  step.after_tail = {passes::kRewind};
  builder.lower("prune_step", "micro", step);
  if (prune.rewind) {
    step.before_tail = {passes::kTies};
    step.after_tail = {passes::kRemember};
    builder.lower("remember_step", "micro", step);
  }
  std::map<std::int64_t, std::string> special;
  if (prune.rewind) special[prune.remembered] = "remember_step";
  for (const std::int64_t at : prune.steps) special[at] = "prune_step";
  std::vector<StepProgram> steps;
  std::int64_t next = 0;
  for (const auto& [at, program] : special) {
    if (at > next) steps.push_back({"step", next});
    steps.push_back({program, at});
    next = at + 1;
  }
  steps.push_back({"step", next});
  return steps;
}

}  // namespace

StepOrder step_order(const Graphs& graphs, const Plan& plan) {
  if (plan.stages() == 1 || graphs.purpose != Purpose::train) return {};
  const program::Schedule schedule = plan.schedule(graphs.micro_batches);
  return {schedule.stages, {schedule.asynchronous() ? 0 : program::sends_in_flight(schedule)}};
}

program::LowerOptions steady_step(const Graphs& graphs, const Plan& plan, const StepOrder& order,
                                  const ir::Module& module, int stage) {
  program::LowerOptions options = step_options(graphs, plan);
  if (const auto own = async_stage(graphs, plan, stage))
    return async_options(*own, options, module, AsyncStage::Part::step, own->period());
  options.actions = order.of(stage);
  options.messages = order.messages;
  return options;
}

std::vector<StepProgram> lower_steps(RoleBuilder& builder, Role& role, const Graphs& graphs, const Plan& plan,
                                     const StepOrder& order, int stage) {
  if (const auto own = async_stage(graphs, plan, stage))
    return lower_async_stage(builder, role, *own, step_options(graphs, plan));
  program::LowerOptions options = steady_step(graphs, plan, order, role.module, stage);
  builder.lower("step", "micro", options);
  if (plan.prune) return lower_pruning(builder, *plan.prune, options);
  if (!role.module.has_graph(passes::kWarmUpdate)) return {{"step", 0}};
  options.tail = passes::kWarmUpdate;
  builder.lower("warm_step", "micro", options);
  return {{"warm_step", 0}, {"step", plan.compress->warmup}};
}

}  // namespace trireme::compiler
