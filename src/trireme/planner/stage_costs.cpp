#include "trireme/planner/stage_costs.h"

#include <algorithm>

#include "trireme/ir/axes.h"
#include "trireme/planner/predict.h"

namespace trireme::planner {

program::ScheduleCosts stage_costs(const compiler::Compiled& compiled) {
  program::ScheduleCosts costs;
  costs.stages.clear();
  for (const compiler::Role* stage : stage_roles(compiled)) {
    const compiler::Role& role = *stage;
    program::ActionCost cost{0, 0, 0, 0};
    const program::Program& step = *std::find_if(role.programs.begin(), role.programs.end(),
                                                 [](const program::Program& p) { return p.name.starts_with("step"); });
    const cost::Rates rates = cost::Rates::of(step.device);
    const double count = static_cast<double>(compiled.micro_batches) * compiled.plan.parts() / compiled.plan.stages();
    for (const program::Instruction& i : step.instructions) {
      if (i.kind != program::Instruction::Kind::launch) continue;
      const double seconds = nominal_seconds(i, rates);
      switch (i.phase) {
        case ir::Phase::forward: cost.forward += seconds / count; break;
        case ir::Phase::input_gradient: cost.backward += seconds / count; break;
        case ir::Phase::weight_gradient: cost.weight_gradient += seconds / count; break;
        case ir::Phase::update: cost.update += seconds; break;
      }
    }
    costs.stages.push_back(cost);
  }
  return costs;
}

std::vector<const compiler::Role*> stage_roles(const compiler::Compiled& compiled) {
  std::vector<const compiler::Role*> roles(static_cast<std::size_t>(compiled.plan.stages()), nullptr);
  for (const compiler::Role& role : compiled.roles) {
    const auto place = role.places.find(ir::kPipelineAxis);
    const std::size_t stage = place == role.places.end() ? 0 : static_cast<std::size_t>(place->second);
    if (role.takes_rows() && roles[stage] == nullptr) roles[stage] = &role;
  }
  return roles;
}

program::Schedule schedule_of(const compiler::Compiled& compiled) {
  return compiled.plan.schedule(compiled.micro_batches);
}

}  // namespace trireme::planner
