// Declared in compile.h.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "trireme/compiler/async_role.h"
#include "trireme/compiler/compile.h"
#include "trireme/compiler/role_name.h"
#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/state_graphs.h"
#include "trireme/program/check_together.h"
#include "trireme/program/messages.h"

namespace trireme::compiler {
namespace {

// Whether a program has a collective of this group.
bool meets(const program::Program& p, const program::Group& group) {
  const std::string axes = fmt::format("{}", fmt::join(group.axes, "+"));
  return group.messages.empty() && std::any_of(p.instructions.begin(), p.instructions.end(), [&](const auto& i) {
           return i.kind == program::Instruction::Kind::collective && i.attributes.text("axis") == axes;
         });
}

// Proves that the roles' programs which run at the same time fit together.
class RoleCheck {
 public:
  explicit RoleCheck(const Compiled& c) : c_(c) {}

  // `program_of` gives a role's program, or null; `exchange_of` what it answers messages with.
  program::TogetherReport run(const auto& program_of, const auto& exchange_of) const {
    std::vector<program::RoleProgram> running;
    constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> number(c_.roles.size(), kNone);  // by role: its place among those that run
    for (std::size_t r = 0; r < c_.roles.size(); ++r) {
      const Role& role = c_.roles[r];
      const program::Exchange* exchange = exchange_of(role);
      const program::Program* own = program_of(role, exchange);
      if (own == nullptr) continue;
      number[r] = running.size();
      passes::Places rest = role.places;
      rest.erase(ir::kPipelineAxis);
      running.push_back({role.name, own, {}, exchange, {}, rest.empty() ? "" : " at " + role_name(rest)});
      for (int rank = 0; rank < c_.ranks(); ++rank)
        if (c_.seat(rank).role == r) running.back().ranks.push_back(rank);
      for (const program::Group& group : c_.groups)
        if (group.messages == program::kExchangeMessages)
          running.back().peers = c_.members(group, running.back().ranks.front());
    }
    for (const program::Group& group : c_.groups)
      for (const std::size_t absent : group.roles)
        if (number[absent] == kNone)
          for (const std::size_t present : group.roles)
            if (number[present] != kNone && meets(*running[number[present]].program, group))
              fail("role '{}' has no program in which it would meet role '{}' of program '{}' along {}",
                   c_.roles[absent].name, c_.roles[present].name, running[number[present]].program->name,
                   fmt::join(group.axes, "+"));
    std::vector<program::Group> groups = c_.groups;
    for (program::Group& group : groups) {
      std::erase_if(group.roles, [&](std::size_t role) { return number[role] == kNone; });
      for (std::size_t& role : group.roles) role = number[role];
    }
    std::erase_if(groups, [](const program::Group& group) { return group.roles.empty(); });
    return program::check_together(running, groups);
  }

 private:
  const Compiled& c_;
};

// Stages at their own pace: what one program sends, another may receive. A run may end after any step. The programs
// that a stage repeats, and those it drains by, have one order each (expect_same_order), and no more than a step's
// micro-batches are ever in flight: with a fill, two steps and a drain every two programs have met that ever do.
// Reports on the longest run.
program::TogetherReport check_async_stages(const Compiled& c, const std::string& prefix) {
  constexpr int kSteps = 3;
  program::TogetherReport longest;
  expect_same_order(c, prefix);
  for (int steps = 1; steps <= kSteps; ++steps) {
    const std::vector<program::Program> rounds = async_rounds(c, steps, prefix);
    if (rounds.empty()) return {};
    longest = RoleCheck(c).run(
        [&](const Role& role, const program::Exchange*) {
          return &rounds[static_cast<std::size_t>(&role - c.roles.data())];
        },
        [](const Role&) -> const program::Exchange* { return nullptr; });
  }
  return longest;
}

}  // namespace

program::TogetherReport check_roles(const Compiled& c) {
  program::TogetherReport report;
  const auto check = [&](const std::string& program, const auto& exchange_of) {
    report += RoleCheck(c).run(
        [&](const Role& role, const program::Exchange* exchange) {
          return exchange != nullptr && program != "refresh" ? role.during(program) : role.find(program);
        },
        exchange_of);
  };
  if (c.asynchronous_pipeline()) {
    report += check_async_stages(c, "");
    report += check_async_stages(c, kWarmPrograms);
  } else {
    for (const std::string& program : c.step_programs())
      check(program, [&](const Role& role) { return role.exchange ? &role.exchange->of(program) : nullptr; });
  }
  std::vector<std::string> others = {"init", "eval", "predict", passes::kPrune, passes::kRemember, passes::kRewind};
  for (const Prefill& prefill : c.prefill) others.push_back(prefill.program);
  for (const std::string& other : others)
    if (c.ranks() > 1) check(other, [](const Role&) -> const program::Exchange* { return nullptr; });
  // After the state was set from outside, states are sent unasked.
  std::map<const Role*, program::Exchange> states;
  for (const Role& role : c.roles)
    if (role.exchange) {
      states[&role] = *role.exchange;
      states[&role].pushes.clear();
      states[&role].results.clear();
    }
  if (std::any_of(c.roles.begin(), c.roles.end(), [](const Role& role) { return role.find("refresh") != nullptr; }))
    check("refresh", [&](const Role& role) { return role.exchange ? &states[&role] : nullptr; });
  return report;
}

}  // namespace trireme::compiler
