#include "trireme/compiler/micro_batches.h"

#include "trireme/compiler/role_name.h"
#include "trireme/compiler/step_programs.h"
#include "trireme/core/error.h"

namespace trireme::compiler {

Compiled with_micro_batches(Compiled c, const Graphs& graphs) {
  TRI_CHECK(c.micro_batches > 1 && graphs.micro_batches > 1, "gradients of one micro-batch are not accumulated");
  c.micro_batches = graphs.micro_batches;
  const StepOrder order = step_order(graphs, c.plan);
  for (Role& role : c.roles) {
    TRI_CHECK(role.takes_rows(), "a role that answers messages has no micro-batches");
    role.programs.clear();
    role.arena_bytes = 0;
    role.tier_bytes = {};
    RoleBuilder builder(role, c.plan, c.plan.mesh.ranks() / c.plan.stages());
    c.steps = lower_steps(builder, role, graphs, c.plan, order, stage_of(role.places));
  }
  return c;
}

}  // namespace trireme::compiler
