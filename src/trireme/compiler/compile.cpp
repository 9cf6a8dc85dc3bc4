#include "trireme/compiler/compile.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/compiler/extra_roles.h"
#include "trireme/compiler/graph_passes.h"
#include "trireme/compiler/lowering.h"
#include "trireme/compiler/role_builder.h"
#include "trireme/compiler/role_name.h"
#include "trireme/compiler/step_programs.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/passes/remat.h"
#include "trireme/program/messages.h"

namespace trireme::compiler {
namespace {

// It stays as long as the run: what passes took out of it leaves no room behind.
void shrink(ir::Module& module) {
  for (ir::Graph& graph : module.graphs) {
    graph.nodes.shrink_to_fit();
    graph.values.shrink_to_fit();
  }
  module.states.shrink_to_fit();
}

// Adds the names of what its forward phase makes to `forward`, where some of it is to be recomputed.
Role compile_rows(Compiled& c, const Graphs& graphs, const Plan& plan, const ir::Module& common,
                  const passes::Places& places, const StepOrder& order, std::set<std::string>& forward,
                  const CompileOptions& options) {
  Role role;
  role.name = role_name(places);
  role.places = places;
  role.module = common;
  const passes::Pipeline passes = graph_passes(graphs, plan, {}, places);
  std::filesystem::path dump = options.dump_passes;
  if (!places.empty() && !dump.empty()) {
    std::string folder = role.name;
    std::erase(folder, ',');
    std::replace(folder.begin(), folder.end(), ' ', '-');
    dump /= folder;
  }
  passes::Pipeline::Options run{
      .dump = dump, .disabled = options.disabled_passes, .on_pass = options.on_pass, .from = first_pass_by_place(plan)};
  if (plan.recompute && role.module.has_graph("micro")) {
    run.until = "remat";
    passes.run(role.module, run);
    forward.merge(passes::forward_values(role.module.graph("micro")));
    run.from = std::exchange(run.until, "");
  }
  passes.run(role.module, run);
  shrink(role.module);
  // Program passes are numbered on from the graph passes.
  RoleBuilder builder(role, plan, plan.mesh.ranks() / plan.stages(),
                      {dump, passes.names().size() + 1, options.on_pass});
  builder.lower("init", "init");
  builder.lower("refresh", "refresh");
  if (role.module.has_graph("micro")) c.steps = lower_steps(builder, role, graphs, plan, order, stage_of(places));
  builder.lower("eval", "eval");
  builder.lower("predict", "predict");
  for (const std::int64_t rows : graphs.prefill) {
    builder.lower(prefill_graph(rows), prefill_graph(rows));
    c.prefill.push_back({prefill_graph(rows), rows});
  }
  c.checked.instructions += builder.checked().instructions;
  c.checked.buffers += builder.checked().buffers;
  c.checked.conflicts_ordered += builder.checked().conflicts_ordered;
  return role;
}

// The places of a role's ranks along all axes but some.
std::set<std::vector<int>> places_beyond(const Compiled& c, std::size_t role, const std::vector<std::string>& axes) {
  std::set<std::vector<int>> places;
  for (int rank = 0; rank < c.ranks(); ++rank) {
    if (c.seat(rank).role != role) continue;
    std::vector<int> at = c.coordinate(rank);
    for (const std::string& axis : axes) at[c.roles[role].module.mesh.index_of(axis)] = 0;
    places.insert(std::move(at));
  }
  return places;
}

bool has_axis(const Role& role, const std::string& name) {
  const std::vector<ir::Mesh::Axis>& axes = role.module.mesh.axes;
  return std::any_of(axes.begin(), axes.end(), [&](const ir::Mesh::Axis& axis) { return axis.name == name; });
}

// Every axis of a role's mesh is a group of its own, and so are several axes over which any role has a collective: who
// should meet follows from places, not from the programs that are to be proven. Roles with
// the same mesh share a group where their ranks meet in it, as stages do along pp. Messages between stages have a group
// for each direction.
std::vector<program::Group> groups_of(const Compiled& c) {
  const std::vector<Role>& roles = c.roles;
  std::vector<program::Group> groups = groups_of_extra_roles(roles);
  const auto join = [&](const std::vector<std::string>& axes, std::size_t role) {
    for (program::Group& group : groups) {
      const std::size_t other = group.axes == axes ? group.roles.front() : role;
      if (other != role && roles[other].module.mesh == roles[role].module.mesh &&
          roles[other].takes_rows() == roles[role].takes_rows() &&
          places_beyond(c, other, axes) == places_beyond(c, role, axes)) {
        group.roles.push_back(role);
        return;
      }
    }
    groups.push_back({axes, {role}});
  };
  for (std::size_t r = 0; r < roles.size(); ++r)
    for (const ir::Mesh::Axis& axis : roles[r].module.mesh.axes) join({axis.name}, r);
  std::set<std::string> several;
  for (const Role& role : roles)
    for (const program::Program& p : role.programs)
      for (const program::Instruction& i : p.instructions)
        if (i.kind == program::Instruction::Kind::collective &&
            i.attributes.text("axis").find('+') != std::string::npos)
          several.insert(i.attributes.text("axis"));
  for (std::size_t r = 0; r < roles.size(); ++r)
    for (const std::string& text : several) {
      const std::vector<std::string> axes = split(text, '+');
      if (std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) { return has_axis(roles[r], axis); }))
        join(axes, r);
    }
  std::set<std::string> known;
  for (const Role& role : roles)
    for (const program::Program& p : role.programs)
      for (const program::Instruction& i : p.instructions)
        if (i.between_stages() && known.insert(program::message_group(i)).second) {
          groups.push_back({{ir::kPipelineAxis}, {}, program::message_group(i)});
          for (std::size_t r = 0; r < roles.size(); ++r)
            for (const char* end : {"from", "to"})
              if (roles[r].takes_rows() && roles[r].places.at(ir::kPipelineAxis) == i.attributes.integer(end))
                groups.back().roles.push_back(r);
        }
  if (c.asynchronous_pipeline()) {
    groups.push_back({{}, {}, kReports});
    for (std::size_t r = 0; r < roles.size(); ++r) groups.back().roles.push_back(r);
  }
  return groups;
}

// Refuses names of values and states that no role has.
void check_names(const Plan& plan, const std::set<std::string>& forward, const std::vector<Role>& roles) {
  if (plan.recompute && !forward.empty()) passes::check_recomputed(forward, *plan.recompute);
  if (!plan.offload) return;
  std::set<std::string> states;
  for (const Role& role : roles)
    for (const ir::State& state : role.module.states) states.insert(state.name);
  for (const std::string& name : plan.offload->states)
    if (!states.contains(name))
      refuse("'{}' is to be offloaded, and there is no such state{}", name,
             nearest_text(name, {states.begin(), states.end()}));
  std::set<std::string> stored;
  for (const Role& role : roles)
    if (role.module.has_graph("micro"))
      for (const ir::ValueInfo& value : role.module.graph("micro").values) stored.insert(value.name);
  for (const std::string& name : plan.offload->activations)
    if (!stored.contains(name + ".store"))
      refuse("'{}' is to be offloaded, and the backward pass reads no such value{}", name,
             nearest_text(name, {stored.begin(), stored.end()}));
}

// Of the inputs that go by rows.
std::map<std::string, Shape> row_shapes(const Graphs& graphs) {
  std::map<std::string, Shape> shapes;
  for (const char* name : {"micro", "eval"}) {
    if (!graphs.module.has_graph(name)) continue;
    const ir::Graph& graph = graphs.module.graph(name);
    for (const std::string& input : graphs.row_inputs)
      if (const auto value = graph.find_input(input))
        shapes[input] = graph.type(*value).shape.slice(1, graph.type(*value).shape.rank());
  }
  return shapes;
}

}  // namespace

Compilation::Compilation(const Graphs& graphs) : graphs_(graphs), module_(graphs.module) {}

void Compilation::run_until(const Plan& plan, const std::string& pass) {
  graph_passes(graphs_, plan, {}, at_).run(module_, {.from = next_, .until = pass});
  next_ = pass;
}

std::vector<program::Action> Compilation::actions(const Plan& plan) const {
  const std::vector<program::Action> own = step_order(graphs_, plan).of(static_cast<int>(stage()));
  return own.empty() ? program::plain_order({.micro_batches = graphs_.micro_batches}) : own;
}

program::Program Compilation::step(const Plan& plan) const {
  ir::Module module = module_;
  graph_passes(graphs_, plan, {}, at_).run(module, {.from = next_});
  return lower(module, lay_out(module, plan, plan.mesh.ranks() / plan.stages()),
               steady_step(graphs_, plan, step_order(graphs_, plan), module, static_cast<int>(stage())), plan);
}

Compiled compile(const Graphs& graphs, const Plan& plan, const CompileOptions& options) {
  Compiled c;
  c.plan = plan;
  c.mesh = plan.mesh;
  c.replicas = plan.mesh.size_of(kRowAxis);
  c.micro_rows = graphs.micro_rows;
  c.targets_alone = graphs.targets_alone;
  for (const ir::State& state : graphs.module.states)
    if (state.trained) c.model_parameters += static_cast<std::uint64_t>(state.global_shape().elements());
  c.micro_batches = graphs.micro_batches;
  if (!graphs.prefill.empty()) c.cache_rows = graphs.cache_rows - graphs.prefill.back();
  c.row_shapes = row_shapes(graphs);
  ir::Module common = graphs.module;
  if (const std::string until = first_pass_by_place(plan); !until.empty())
    graph_passes(graphs, plan).run(common, {.dump = options.dump_passes, .on_pass = options.on_pass, .until = until});
  const StepOrder order = step_order(graphs, plan);
  const std::vector<passes::Places> all_places = role_places(plan);
  check_extra_roles(common, graphs, plan, all_places);
  std::set<std::string> forward;
  for (const passes::Places& places : all_places)
    c.roles.push_back(compile_rows(c, graphs, plan, common, places, order, forward, options));
  for (int r = 0; r < plan.mesh.ranks(); ++r) {
    passes::Places own;
    for (const auto& [axis, place] : all_places.front()) own[axis] = plan.mesh.coordinate(r)[plan.mesh.index_of(axis)];
    const auto role = std::find(all_places.begin(), all_places.end(), own);
    c.seats.push_back({static_cast<std::size_t>(role - all_places.begin()), r});
  }
  add_extra_roles(c, graphs, plan, all_places, options);
  if (c.roles.size() > 1) check_names(plan, forward, c.roles);
  c.groups = groups_of(c);
  c.together = check_roles(c);
  return c;
}

}  // namespace trireme::compiler
