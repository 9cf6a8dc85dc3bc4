#include "trireme/compiler/role_builder.h"

#include <algorithm>

#include "trireme/compiler/lowering.h"
#include "trireme/compiler/saved_state.h"

namespace trireme::compiler {
namespace {

// A CPU stages checkpoints in the arena; the host of another device stages them in its own memory.
std::size_t staging_of(const ir::Module& module, const Plan& plan, int ranks) {
  return std::min(plan.staging, whole_staging(module, ranks));
}

}  // namespace

program::StateLayout lay_out(const ir::Module& module, const Plan& plan, int ranks) {
  return program::lay_out(module, plan.device == device::Kind::cpu ? staging_of(module, plan, ranks) : 0);
}

RoleBuilder::RoleBuilder(Role& role, const Plan& plan, int ranks, program::PassReports reports)
    : role_(role), plan_(plan), reports_(std::move(reports)) {
  role.layout = lay_out(role.module, plan, ranks);
  if (plan.device != device::Kind::cpu) role.host_staging = staging_of(role.module, plan, ranks);
}

void RoleBuilder::lower(const std::string& name, const std::string& body, program::LowerOptions options) {
  if (!role_.module.has_graph(body)) return;
  options.name = name;
  options.body = body;
  program::CheckReport report;
  options.reports = reports_;
  options.reports.checked = &report;
  program::Program p = compiler::lower(role_.module, role_.layout, options, plan_);
  checked_.instructions += report.instructions;
  checked_.buffers += report.buffers;
  checked_.conflicts_ordered += report.conflicts_ordered;
  role_.arena_bytes = std::max(role_.arena_bytes, p.arena_bytes);
  for (std::size_t tier = 1; tier < role_.tier_bytes.size(); ++tier)
    role_.tier_bytes[tier] = std::max(role_.tier_bytes[tier], p.tier_bytes[tier]);
  // It stays as it is, as long as the run.
  p.instructions.shrink_to_fit();
  p.buffers.shrink_to_fit();
  p.values.shrink_to_fit();
  role_.programs.push_back(std::move(p));
}

void RoleBuilder::lower(const std::string& name, const std::string& body) { lower(name, body, lower_options(plan_)); }

}  // namespace trireme::compiler
