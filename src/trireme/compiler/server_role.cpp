#include "trireme/compiler/server_role.h"

#include "trireme/compiler/graph_passes.h"
#include "trireme/compiler/role_builder.h"

namespace trireme::compiler {
namespace {

Role compile_server(const Role& worker, const Graphs& graphs, const Plan& plan, int place,
                    const CompileOptions& options) {
  Role role;
  role.name = fmt::format("server {}", place);
  role.kind = "server";
  role.module = graphs.module;
  const std::filesystem::path dump =
      options.dump_passes.empty() ? "" : options.dump_passes / fmt::format("server-{}", place);
  const passes::Pipeline passes = graph_passes(graphs, plan, place);
  passes.run(role.module, {dump, options.disabled_passes, options.on_pass});
  RoleBuilder builder(role, plan, 1, {dump, passes.names().size() + 1, options.on_pass});
  builder.lower("init", "init");
  builder.lower("refresh", "refresh");
  builder.lower("step", "update");
  const int workers = plan.server->workers;
  role.exchange = program::match(worker.program("step"), worker.program("refresh"), role.module, workers + place,
                                 workers, passes::slot_name);
  role.exchange->each = plan.server->each;
  role.exchange->bound = plan.server->bound;
  return role;
}

}  // namespace

void add_server_roles(Compiled& c, const Graphs& graphs, const Plan& plan, const CompileOptions& options) {
  for (int s = 0; plan.server && s < plan.server->servers; ++s) {
    c.roles.push_back(compile_server(c.roles.front(), graphs, plan, s, options));
    c.seats.push_back({c.roles.size() - 1, s});
  }
}

}  // namespace trireme::compiler
