#include "trireme/compiler/step_programs.h"

#include <map>
#include <set>

#include "trireme/compiler/async_role.h"
#include "trireme/compiler/lowering.h"
#include "trireme/passes/split.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::compiler {
namespace {

program::LowerOptions step_options(const Graphs& graphs, const Plan& plan, const StepOrder& order) {
  program::LowerOptions lowering = lower_options(plan);
  lowering.messages = order.messages;
  lowering.before_tail = {passes::kTies};
  lowering.tail = "update";
  lowering.micro_batches = graphs.micro_batches;
  return lowering;
}

constexpr std::string_view kWarm = "warm_";
constexpr std::string_view kStep = "step";
constexpr std::string_view kPruneStep = "prune_step";
constexpr std::string_view kRememberStep = "remember_step";

}  // namespace

std::vector<StepProgram> step_kinds(const Plan& plan, bool warms) {
  const std::int64_t warm = warms ? plan.compress->warmup : 0;
  std::map<std::int64_t, std::string_view> special;
  if (plan.prune && plan.prune->rewind) special[plan.prune->remembered] = kRememberStep;
  if (plan.prune)
    for (const std::int64_t at : plan.prune->steps) special[at] = kPruneStep;
  std::set<std::int64_t> begins = {0, warm};
  for (const auto& [at, program] : special) begins.insert({at, at + 1});
  std::vector<StepProgram> steps;
  for (const std::int64_t at : begins) {
    const auto found = special.find(at);
    std::string name(found == special.end() ? kStep : found->second);
    if (at < warm) name = std::string(kWarm) + name;
    if (steps.empty() || steps.back().program != name) steps.push_back({name, at});
  }
  return steps;
}

StepOrder step_order(const Graphs& graphs, const Plan& plan) {
  if (plan.stages() == 1 || graphs.purpose != Purpose::train) return {};
  const program::Schedule schedule = plan.schedule(graphs.micro_batches);
  const program::SendsInFlight sends = program::sends_in_flight(schedule);
  return {schedule.stages, {sends.activations, sends.gradients}};
}

program::LowerOptions steady_step(const Graphs& graphs, const Plan& plan, const StepOrder& order,
                                  const ir::Module& module, int stage) {
  program::LowerOptions options = step_options(graphs, plan, order);
  if (const auto own = async_stage(graphs, plan, stage))
    return async_options(*own, options, module, AsyncStage::Part::step, own->period());
  options.actions = order.of(stage);
  if (plan.schedule_given)
    options.order = fmt::format("parallel.pipeline = \"file:{}\": stage {}", plan.pipeline.path, stage);
  return options;
}

std::vector<StepProgram> lower_steps(RoleBuilder& builder, Role& role, const Graphs& graphs, const Plan& plan,
                                     const StepOrder& order, int stage) {
  if (const auto own = async_stage(graphs, plan, stage))
    return lower_async_stage(builder, role, *own, step_options(graphs, plan, order));
  const program::LowerOptions options = steady_step(graphs, plan, order, role.module, stage);
  const std::vector<StepProgram> steps = step_kinds(plan, role.module.has_graph(passes::kWarmUpdate));
  builder.lower("step", "micro", options);
  std::set<std::string> lowered = {"step"};
  for (const StepProgram& step : steps) {
    if (!lowered.insert(step.program).second) continue;
    program::LowerOptions own = options;
    if (is_warm(step.program)) own.tail = passes::kWarmUpdate;
    const AroundUpdate around = around_update(step.program);
    own.before_tail.insert(own.before_tail.end(), around.before.begin(), around.before.end());
    own.after_tail = around.behind;
    builder.lower(step.program, "micro", own);
  }
  return steps;
}

bool is_warm(std::string_view step_program) { return step_program.starts_with(kWarm); }

AroundUpdate around_update(std::string_view step_program) {
  if (step_program.ends_with(kPruneStep)) return {{passes::kPrune}, {passes::kRewind}};
  if (step_program.ends_with(kRememberStep)) return {{}, {passes::kRemember}};
  return {};
}

}  // namespace trireme::compiler
