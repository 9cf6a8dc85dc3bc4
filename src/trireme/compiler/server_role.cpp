#include <algorithm>
#include <map>

#include "trireme/compiler/extra_roles.h"
#include "trireme/compiler/graph_passes.h"
#include "trireme/compiler/role_builder.h"
#include "trireme/compiler/step_programs.h"
#include "trireme/core/error.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::compiler {
namespace {

// What is sent to workers, and what they send, stays in memory.
void offload(ir::Module& module, const ir::Module& worker, passes::Offload::Options offload,
             const CompileOptions& options) {
  std::erase_if(offload.states, [&](const std::string& name) {
    const ir::StateId own = module.find_state(name);
    return own == ir::kNone || module.state(own).category == ir::Category::gradients ||
           worker.find_state(name) != ir::kNone;
  });
  offload.activations.clear();
  offload.reloads.clear();
  passes::Pipeline further;
  further.add<passes::Offload>(std::move(offload));
  further.run(module, {.on_pass = options.on_pass});
}

Role compile_server(const Compiled& c, const Role& worker, const Graphs& graphs, const Plan& plan, int place,
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
  if (plan.offload) offload(role.module, worker.module, *plan.offload, options);
  RoleBuilder builder(role, plan, 1, {dump, passes.names().size() + 1, options.on_pass});
  builder.lower("init", "init");
  builder.lower("refresh", "refresh");
  builder.lower("step", "update");
  builder.lower(kWarmStep, passes::kWarmUpdate);
  for (const char* graph : {passes::kPrune, passes::kRemember, passes::kRewind}) builder.lower(graph, graph);
  const int workers = plan.server->workers;
  // Workers send the same in all their steps, or in all before and after something is warm.
  const auto table = [&](const std::string& step, const std::string& update) {
    program::Exchange exchange = program::match(worker.program(step), worker.program("refresh"), {role.module, update},
                                                workers + place, workers, passes::slot_name);
    exchange.each = plan.server->each;
    exchange.bound = plan.server->bound;
    for (const std::string& other : c.step_programs())
      if (other != step && is_warm(other) == is_warm(step)) exchange.programs.push_back(other);
    return exchange;
  };
  role.exchange = table("step", "update");
  if (role.find(kWarmStep) != nullptr) role.exchange->others.push_back(table(kWarmStep, passes::kWarmUpdate));
  program::expect_all_slots(*role.exchange, role.module, workers + place, passes::slot_name);
  return role;
}

}  // namespace

std::vector<ir::Module> modules_beyond(const Graphs& graphs, const Plan& plan, const passes::Places& places) {
  std::vector<ir::Module> modules;
  for (int s = 0; plan.server && s < plan.server->servers; ++s)
    graph_passes(graphs, plan, s, places).run(modules.emplace_back(graphs.module), {});
  return modules;
}

void check_extra_roles(const ir::Module& common, const Graphs& graphs, const Plan& plan,
                       const std::vector<passes::Places>& places) {
  if (!plan.server) return;
  const int servers = plan.server->servers;
  int most = 0;
  for (std::size_t at = 0; at < places.size() && most < servers; ++at) {
    ir::Module module = common;
    const passes::Pipeline passes = graph_passes(graphs, plan, 0, places[at]);
    passes.run(module, {.from = first_pass_by_place(plan), .until = passes::ServerSide::kName});
    most = std::max(most, passes::servers_with_keys(module, *plan.server));
  }
  if (const int nearest = std::max(1, most); nearest < servers)
    refuse("parallel.servers = {} is more than there are parameters to keep; the nearest is parallel.servers = {}",
           servers, nearest);
}

void add_extra_roles(Compiled& c, const Graphs& graphs, const Plan& plan, const std::vector<passes::Places>& places,
                     const CompileOptions& options) {
  if (!plan.server) return;
  std::map<std::pair<passes::Places, int>, std::size_t> roles;  // by the places of the workers, and the server's number
  for (std::size_t r = 0; r < places.size(); ++r)
    for (int s = 0; s < plan.server->servers; ++s) {
      roles[{places[r], s}] = c.roles.size();
      c.roles.push_back(compile_server(c, c.roles[r], graphs, plan, s, options));
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
