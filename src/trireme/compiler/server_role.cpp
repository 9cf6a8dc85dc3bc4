#include <algorithm>
#include <map>

#include "trireme/compiler/extra_roles.h"
#include "trireme/compiler/graph_passes.h"
#include "trireme/compiler/role_builder.h"

namespace trireme::compiler {
namespace {

Role compile_server(const Role& worker, const Graphs& graphs, const Plan& plan, int place,
                    const CompileOptions& options) {
  Role role;
  role.name = fmt::format("server {}", place);
  if (!worker.places.empty()) role.name += " of " + worker.name;
  role.kind = "server";
  role.places = worker.places;
  role.module = graphs.module;
  std::string folder = role.name;
  std::erase(folder, ',');
  std::replace(folder.begin(), folder.end(), ' ', '-');
  const std::filesystem::path dump = options.dump_passes.empty() ? "" : options.dump_passes / folder;
  const passes::Pipeline passes = graph_passes(graphs, plan, place, worker.places);
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

void add_extra_roles(Compiled& c, const Graphs& graphs, const Plan& plan, const std::vector<passes::Places>& places,
                     const CompileOptions& options) {
  if (!plan.server) return;
  std::map<std::pair<passes::Places, int>, std::size_t> roles;  // by the places of the workers, and the server's number
  for (std::size_t r = 0; r < places.size(); ++r)
    for (int s = 0; s < plan.server->servers; ++s) {
      roles[{places[r], s}] = c.roles.size();
      c.roles.push_back(compile_server(c.roles[r], graphs, plan, s, options));
    }
  const ir::Mesh mesh = passes::server_mesh(plan.mesh, plan.server->servers);
  for (int number = 0; number < mesh.ranks(); ++number) {
    const std::vector<int> at = mesh.coordinate(number);
    passes::Places own;
    for (const auto& [axis, place] : places.front()) own[axis] = at[mesh.index_of(axis)];
    const bool several = plan.server->servers > 1;
    c.seats.push_back({roles.at({own, several ? at[mesh.index_of(passes::kServerAxis)] : 0}), number});
  }
}

std::vector<program::Group> groups_of_extra_roles(const std::vector<Role>& roles) {
  program::Group messages{{kRowAxis, passes::kServerAxis}, {}, program::kExchangeMessages};
  program::Group keepers{{}, {}, program::kKeepers};
  for (std::size_t r = 0; r < roles.size(); ++r) {
    messages.roles.push_back(r);
    if (roles[r].exchange) keepers.roles.push_back(r);
  }
  if (keepers.roles.empty()) return {};
  return {std::move(messages), std::move(keepers)};
}

}  // namespace trireme::compiler
