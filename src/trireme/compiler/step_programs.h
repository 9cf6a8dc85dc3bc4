#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trireme/compiler/graphs.h"
#include "trireme/compiler/role_builder.h"
#include "trireme/program/lower.h"

namespace trireme::compiler {

// The order in which the stages work, and how many of their messages may be on their way.
struct StepOrder {
  std::vector<std::vector<program::Action>> stages = {{}};  // empty: each micro-batch goes to its end
  program::MessageOptions messages = {};

  const std::vector<program::Action>& of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
  }
};
StepOrder step_order(const Graphs& graphs, const Plan& plan);

// Which step is of which kind, by the name of its program: some prune, after one the weights are remembered, and the
// first ones may be warm.
std::vector<StepProgram> step_kinds(const Plan& plan, bool warms);

// The program of a step while something is warmed up; names of others that are run then begin like it.
inline constexpr const char* kWarmStep = "warm_step";
bool is_warm(std::string_view step_program);

// What a step program runs around its update (passes/state_graphs.h).
struct AroundUpdate {
  std::vector<std::string> before;
  std::vector<std::string> behind;
};
AroundUpdate around_update(std::string_view step_program);

// How the step is lowered that a stage repeats: neither the first ones, nor those that warm something up or prune.
program::LowerOptions steady_step(const Graphs& graphs, const Plan& plan, const StepOrder& order,
                                  const ir::Module& module, int stage);

// Lowers the programs of a role's steps. Gives which of them does which step.
std::vector<StepProgram> lower_steps(RoleBuilder& builder, Role& role, const Graphs& graphs, const Plan& plan,
                                     const StepOrder& order, int stage);

}  // namespace trireme::compiler
