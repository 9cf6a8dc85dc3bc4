#include "trireme/compiler/compile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "trireme/compiler/async_stage.h"
#include "trireme/compiler/graph_passes.h"
#include "trireme/compiler/lowering.h"
#include "trireme/compiler/role_builder.h"
#include "trireme/compiler/server_role.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/passes/in_flight.h"
#include "trireme/passes/remat.h"
#include "trireme/passes/split.h"
#include "trireme/passes/state_graphs.h"
#include "trireme/program/check_together.h"
#include "trireme/program/concatenate.h"
#include "trireme/program/messages.h"

namespace trireme::compiler {
namespace {

// The order in which the stages work; nothing: there are none.
struct Order {
  std::vector<std::vector<program::Action>> stages = {{}};
  program::MessageOptions messages = {};

  std::vector<program::Action> of(std::size_t stage) const { return stages[stages.size() == 1 ? 0 : stage]; }
};

Order order_of(const Graphs& graphs, const Plan& plan) {
  if (plan.stages() == 1 || graphs.purpose != Purpose::train) return {};
  const program::Schedule schedule = plan.schedule(graphs.micro_batches);
  return {schedule.stages, {schedule.asynchronous() ? 0 : program::sends_in_flight(schedule)}};
}

// Without a pipeline: each micro-batch to its end.
program::LowerOptions step_options(const Graphs& graphs, const Plan& plan, const ir::Mesh& mesh, const Order& order,
                                   std::size_t stage) {
  program::LowerOptions lowering = lower_options(plan, mesh);
  lowering.before_tail = {passes::kTies};
  lowering.tail = "update";
  lowering.micro_batches = graphs.micro_batches;
  lowering.actions = order.of(stage);
  lowering.messages = order.messages;
  return lowering;
}

// "stage 1, h 0, w 2".
std::string role_name(const passes::Places& places) {
  std::vector<std::string> parts;
  for (const char* axis : {ir::kPipelineAxis, ir::kHeightAxis, ir::kWidthAxis})
    if (const auto at = places.find(axis); at != places.end())
      parts.push_back(fmt::format("{} {}", axis == ir::kPipelineAxis ? "stage" : axis, at->second));
  return parts.empty() ? "worker" : fmt::format("{}", fmt::join(parts, ", "));
}

// The programs of a stage of an asynchronous pipeline.
void lower_async(RoleBuilder& builder, Role& role, const AsyncStage& stage, const program::LowerOptions& options) {
  if (role.module.has_graph(passes::kTies))
    refuse(
        "parallel.pipeline: stages that update at their own pace cannot share a table; the nearest is "
        "model.tie_embeddings = false, or parallel.pipeline = \"1f1b\"");
  using Part = AsyncStage::Part;
  role.in_flight = {stage.ahead, stage.period(), !stage.delayed};
  const auto lower = [&](const char* name, Part part, int steps) {
    program::LowerOptions own = options;
    own.calls = stage.calls(role.module, part, steps);
    own.sums_begun = stage.sums_begun(part);
    if (!own.calls.empty()) builder.lower(slot_program(name, steps, stage.period()), "micro", own);
  };
  lower("fill", Part::fill, 0);
  // As many steps as there are programs, none of which is the first.
  for (int steps = stage.period(); steps < 2 * stage.period(); ++steps) {
    lower("step", Part::step, steps);
    lower("drain", Part::drain, steps);
  }
}

// Steps that prune have programs of their own, and so has the one after which the weights are remembered.
void lower_pruning(RoleBuilder& builder, Compiled& c, const passes::Prune::Options& prune, program::LowerOptions step) {
  step.before_tail.emplace_back(passes::kPrune);
  step.after_tail = {passes::kRewind};
  builder.lower("prune_step", "micro", step);
  if (prune.rewind) {
    step.before_tail = {passes::kTies};
    step.after_tail = {passes::kRemember};
    builder.lower("remember_step", "micro", step);
  }
  std::map<std::int64_t, std::string> special;
  if (prune.rewind) special[prune.remembered] = "remember_step";
  for (const std::int64_t at : prune.steps) special[at] = "prune_step";
  c.steps.clear();
  std::int64_t next = 0;
  for (const auto& [at, program] : special) {
    if (at > next) c.steps.push_back({"step", next});
    c.steps.push_back({program, at});
    next = at + 1;
  }
  c.steps.push_back({"step", next});
}

// Adds the names of what its forward phase makes to `forward`, where some of it is to be recomputed.
Role compile_rows(Compiled& c, const Graphs& graphs, const Plan& plan, const ir::Module& common,
                  const passes::Places& places, const Order& order, std::set<std::string>& forward,
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
  // Program passes are numbered on from the graph passes.
  RoleBuilder builder(role, plan, plan.mesh.ranks() / plan.stages(),
                      {dump, passes.names().size() + 1, options.on_pass});
  builder.lower("init", "init");
  builder.lower("refresh", "refresh");
  const auto place = places.find(ir::kPipelineAxis);
  const int stage = place == places.end() ? 0 : place->second;
  if (const auto asynchronous = async_stage(graphs, plan, stage)) {
    lower_async(builder, role, *asynchronous, step_options(graphs, plan, role.module.mesh, Order{}, 0));
    c.steps = {{"fill", 0}, {"step", 1}};
  } else if (role.module.has_graph("micro")) {
    program::LowerOptions step = step_options(graphs, plan, role.module.mesh, order, static_cast<std::size_t>(stage));
    builder.lower("step", "micro", step);
    c.steps = {{"step", 0}};
    if (role.module.has_graph(passes::kWarmUpdate)) {
      step.tail = passes::kWarmUpdate;
      builder.lower("warm_step", "micro", step);
      c.steps = {{"warm_step", 0}, {"step", plan.compress->warmup}};
    }
    if (plan.prune) lower_pruning(builder, c, *plan.prune, step);
  }
  builder.lower("eval", "eval");
  builder.lower("predict", "predict");
  for (const std::int64_t rows : graphs.prefill) {
    builder.lower(prefill_graph(rows), prefill_graph(rows));
    c.prefill.push_back({prefill_graph(rows), rows});
  }
  c.checked.instructions += builder.checked().instructions;
  c.checked.buffers += builder.checked().buffers;
  c.checked.collectives += builder.checked().collectives;
  c.checked.messages += builder.checked().messages;
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

// Every axis of a role's mesh is a group of its own, and so are several axes over which it has a collective. Roles with
// the same mesh share a group where their ranks meet in it: stages along pp, servers along theirs. Replicas and their
// servers are groups for their messages; messages between stages have a group for each direction.
std::vector<program::Group> groups_of(const Compiled& c) {
  const std::vector<Role>& roles = c.roles;
  std::vector<program::Group> groups;
  const auto join = [&](const std::vector<std::string>& axes, std::size_t role) {
    for (program::Group& group : groups) {
      const std::size_t other = group.axes == axes ? group.roles.front() : role;
      if (other != role && roles[other].module.mesh == roles[role].module.mesh &&
          roles[other].exchange.has_value() == roles[role].exchange.has_value() &&
          places_beyond(c, other, axes) == places_beyond(c, role, axes)) {
        group.roles.push_back(role);
        return;
      }
    }
    groups.push_back({axes, {role}});
  };
  if (std::any_of(roles.begin(), roles.end(), [](const Role& role) { return role.exchange.has_value(); })) {
    groups.push_back({{kRowAxis, passes::kServerAxis}, {}, program::kServerMessages});
    groups.push_back({{}, {}, program::kAllServers});
    for (std::size_t r = 0; r < roles.size(); ++r) {
      groups[0].roles.push_back(r);
      if (roles[r].exchange) groups[1].roles.push_back(r);
    }
  }
  for (std::size_t r = 0; r < roles.size(); ++r)
    for (const ir::Mesh::Axis& axis : roles[r].module.mesh.axes) join({axis.name}, r);
  for (std::size_t r = 0; r < roles.size(); ++r) {
    std::set<std::string> several;
    for (const program::Program& p : roles[r].programs)
      for (const program::Instruction& i : p.instructions)
        if (i.kind == program::Instruction::Kind::collective &&
            i.attributes.text("axis").find('+') != std::string::npos)
          several.insert(i.attributes.text("axis"));
    for (const std::string& axes : several) join(split(axes, '+'), r);
  }
  std::set<std::string> known;
  for (const Role& role : roles)
    for (const program::Program& p : role.programs)
      for (const program::Instruction& i : p.instructions)
        if (i.between_stages() && known.insert(program::message_group(i)).second) {
          groups.push_back({{ir::kPipelineAxis}, {}, program::message_group(i)});
          for (std::size_t r = 0; r < roles.size(); ++r)
            for (const char* end : {"from", "to"})
              if (!roles[r].exchange && roles[r].places.at(ir::kPipelineAxis) == i.attributes.integer(end))
                groups.back().roles.push_back(r);
        }
  if (c.asynchronous_pipeline()) {
    groups.push_back({{}, {}, kReports});
    for (std::size_t r = 0; r < roles.size(); ++r) groups.back().roles.push_back(r);
  }
  return groups;
}

// Proves that the roles' programs which run at the same time fit together.
class RoleCheck {
 public:
  explicit RoleCheck(const Compiled& c) : c_(c) {}

  // `program_of` gives a role's program, or null; `exchange_of` what it answers messages with. Gives how many messages
  // there are.
  std::size_t run(const auto& program_of, const auto& exchange_of) const {
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
        if (group.messages == program::kServerMessages)
          running.back().peers = c_.members(group, running.back().ranks.front());
    }
    std::vector<program::Group> groups = c_.groups;
    for (program::Group& group : groups) {
      std::erase_if(group.roles, [&](std::size_t role) { return number[role] == kNone; });
      for (std::size_t& role : group.roles) role = number[role];
    }
    std::erase_if(groups, [](const program::Group& group) { return group.roles.empty(); });
    return program::check_together(running, groups).messages;
  }

 private:
  const Compiled& c_;
};

// Stages at their own pace: what one program sends, another may receive. Every program of every stage comes once.
std::size_t check_async_stages(const Compiled& c) {
  int period = 1;
  for (const Role& role : c.roles) period = std::max(period, role.in_flight->period);
  std::map<const Role*, program::Program> together;
  for (const Role& role : c.roles) {
    std::vector<const program::Program*> all = {&role.program("fill")};
    for (int steps = 1; steps <= period; ++steps)
      all.push_back(&role.program(slot_program("step", steps, role.in_flight->period)));
    if (const auto* drain = role.find(slot_program("drain", period + 1, role.in_flight->period))) all.push_back(drain);
    together.emplace(&role, program::concatenated(all));
  }
  return RoleCheck(c).run([&](const Role& role, const program::Exchange*) { return &together.at(&role); },
                          [](const Role&) -> const program::Exchange* { return nullptr; });
}

}  // namespace

std::size_t check_roles(const Compiled& c) {
  std::size_t messages = 0;
  const auto check = [&](const std::string& program, const auto& exchange_of) {
    messages += RoleCheck(c).run(
        [&](const Role& role, const program::Exchange* exchange) {
          // A role that answers messages has one program for every kind of step.
          return exchange != nullptr && program != "refresh" ? role.find("step") : role.find(program);
        },
        exchange_of);
  };
  const auto whole = [](const Role& role) { return role.exchange ? &*role.exchange : nullptr; };
  if (c.asynchronous_pipeline())
    messages += check_async_stages(c);
  else
    for (const std::string& program : c.step_programs()) check(program, whole);
  std::vector<std::string> others = {"init", "eval", "predict"};
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
  if (!c.steps.empty() &&
      std::all_of(c.roles.begin(), c.roles.end(), [](const Role& role) { return role.find("refresh") != nullptr; }))
    check("refresh", [&](const Role& role) { return role.exchange ? &states[&role] : nullptr; });
  return messages;
}

namespace {

// Refuses names of values and states that no role has.
void check_names(const Plan& plan, const std::set<std::string>& forward, const std::vector<Role>& roles) {
  if (plan.recompute && !forward.empty()) passes::check_recomputed(forward, *plan.recompute);
  if (!plan.offload) return;
  const auto in_any = [&](const auto& has) { return std::any_of(roles.begin(), roles.end(), has); };
  for (const std::string& name : plan.offload->states)
    if (!in_any([&](const Role& role) { return role.module.find_state(name) != ir::kNone; }))
      refuse("'{}' is to be offloaded, and there is no such state", name);
  std::set<std::string> stored;
  for (const Role& role : roles)
    if (role.module.has_graph("micro"))
      for (const ir::ValueInfo& value : role.module.graph("micro").values) stored.insert(value.name);
  for (const std::string& name : plan.offload->activations)
    if (!stored.contains(name + ".store"))
      refuse("'{}' is to be offloaded, and the backward pass reads no such value", name);
}

// Of the images that the model is given; []: it looks at none.
Shape image_shape(const ir::Module& module) {
  for (const ir::Graph& graph : module.graphs)
    if (const auto images = graph.find_input("images")) {
      const Shape& shape = graph.type(*images).shape;
      return shape.rank() < 2 ? Shape{} : shape.slice(1, shape.rank());
    }
  return {};
}

}  // namespace

Compilation::Compilation(const Graphs& graphs) : graphs_(graphs), module_(graphs.module) {}

void Compilation::run_until(const Plan& plan, const std::string& pass) {
  graph_passes(graphs_, plan, {}, at_).run(module_, {.from = next_, .until = pass});
  next_ = pass;
}

std::vector<program::Action> Compilation::actions(const Plan& plan) const {
  const std::vector<program::Action> own = order_of(graphs_, plan).of(stage());
  return own.empty() ? program::plain_order({.micro_batches = graphs_.micro_batches}) : own;
}

program::Program Compilation::step(const Plan& plan) const {
  ir::Module module = module_;
  graph_passes(graphs_, plan, {}, at_).run(module, {.from = next_});
  program::LowerOptions options = step_options(graphs_, plan, module.mesh, order_of(graphs_, plan), stage());
  if (const auto asynchronous = async_stage(graphs_, plan, static_cast<int>(stage()))) {
    options.calls = asynchronous->calls(module, AsyncStage::Part::step, asynchronous->period());
    options.sums_begun = asynchronous->sums_begun(AsyncStage::Part::step);
  }
  return program::lower(module, lay_out(module, plan, plan.mesh.ranks() / plan.stages()), options);
}

Compiled compile(const Graphs& graphs, const Plan& plan, const CompileOptions& options) {
  Compiled c;
  c.plan = plan;
  c.mesh = plan.mesh;
  c.replicas = plan.mesh.size_of(kRowAxis);
  c.micro_rows = graphs.micro_rows;
  for (const ir::State& state : graphs.module.states)
    if (state.trained) c.model_parameters += static_cast<std::uint64_t>(state.global_shape().elements());
  c.micro_batches = graphs.micro_batches;
  if (!graphs.prefill.empty()) c.cache_rows = graphs.cache_rows - graphs.prefill.back();
  c.image = image_shape(graphs.module);
  ir::Module common = graphs.module;
  if (const std::string until = first_pass_by_place(plan); !until.empty())
    graph_passes(graphs, plan).run(common, {.dump = options.dump_passes, .on_pass = options.on_pass, .until = until});
  const Order order = order_of(graphs, plan);
  const std::vector<passes::Places> all_places = role_places(plan);
  std::set<std::string> forward;
  for (const passes::Places& places : all_places)
    c.roles.push_back(compile_rows(c, graphs, plan, common, places, order, forward, options));
  if (all_places.size() > 1) check_names(plan, forward, c.roles);
  for (int r = 0; r < plan.mesh.ranks(); ++r) {
    passes::Places own;
    for (const auto& [axis, place] : all_places.front()) own[axis] = plan.mesh.coordinate(r)[plan.mesh.index_of(axis)];
    const auto role = std::find(all_places.begin(), all_places.end(), own);
    c.seats.push_back({static_cast<std::size_t>(role - all_places.begin()), r});
  }
  add_server_roles(c, graphs, plan, all_places, options);
  c.groups = groups_of(c);
  c.checked.messages += check_roles(c);
  return c;
}

}  // namespace trireme::compiler
