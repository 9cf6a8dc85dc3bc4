#include "trireme/planner/decide.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "trireme/compiler/extra_roles.h"
#include "trireme/compiler/graph_passes.h"
#include "trireme/core/error.h"
#include "trireme/io/shard_writer.h"
#include "trireme/planner/fitting_cuts.h"
#include "trireme/planner/predict.h"
#include "trireme/planner/stages.h"

namespace trireme::planner {
namespace {

using compiler::Compilation;
using compiler::Plan;

Trial measured(const program::Program& step) {
  Trial trial{step.arena_bytes, nominal_seconds(step)};
  for (const program::Instruction& i : step.instructions)
    trial.movable += i.kind == program::Instruction::Kind::store && i.phase == ir::Phase::forward && i.micro == 0;
  return trial;
}

// What no choice of values to recompute or to move gets below, of a step that moves all that may be moved: what stays
// in memory all along, and of others what the instruction with most reads, or what it writes: which of its results take
// the place of operands depends on what is kept.
std::uint64_t least_bytes(const program::Program& step) {
  std::uint64_t always = 0;
  for (const program::Buffer& b : step.buffers)
    if (b.tier == 0 && b.state != program::kNone) always += b.bytes;
  std::uint64_t most = 0;
  for (const program::Instruction& i : step.instructions) {
    for (const auto* operands : {&i.inputs, &i.outputs}) {
      std::map<program::BufferId, std::uint64_t> used;
      for (const program::Operand& o : *operands) {
        if (o.buffer == program::kNone) continue;
        const program::Buffer& b = step.buffers[static_cast<std::size_t>(o.buffer)];
        if (b.tier == 0 && b.state == program::kNone)
          used[o.buffer] = std::max<std::uint64_t>(used[o.buffer], o.type.bytes());
      }
      std::uint64_t sum = 0;
      for (const auto& [buffer, bytes] : used) sum += bytes;
      most = std::max(most, sum);
    }
  }
  return always + most;
}

// What a stage of the pipeline recomputes and offloads; without one, what every rank does.
struct Decided {
  std::vector<std::string> recompute = {};
  bool recomputes = false;  // something that the gradients read
  std::size_t groups = 0;   // of layers, of which the last is saved
  std::vector<std::string> activations = {};
  std::vector<std::string> states = {};
  std::optional<Choice> choice = {};
};

class StageDecision {
 public:
  StageDecision(Compilation compilation, Plan plan, const MemoryPolicy& policy, bool trains)
      : plan_(std::move(plan)),
        policy_(policy),
        rates_(cost::Rates::of(plan_.device)),
        trains_(trains),
        compilation_(std::move(compilation)) {}

  Decided run() {
    hopeless_ = policy_.limit > 0 && trains_ && least() > policy_.limit;
    if (trains_ && policy_.remat.kind != RematPolicy::Kind::none) decide_recompute();
    if (policy_.offload) decide_offload();
    return decided_;
  }

 private:
  bool chooses() const {
    return policy_.limit > 0 && trains_ && policy_.offload && policy_.offload->which == OffloadPolicy::Which::dynamic;
  }
  // As many activations are offloaded as the limit needs.
  bool moves_to_fit() const { return chooses() && policy_.offload->activations; }
  // Weights and optimizer states that there is room for stay.
  bool keeps_to_fit() const { return chooses() && (policy_.offload->weights || policy_.offload->optimizer); }

  // Nothing is searched for where nothing can be found.
  std::uint64_t least() const {
    Plan plan = for_trial();
    if (policy_.remat.kind != RematPolicy::Kind::none) plan.recompute.emplace();
    Compilation further = compilation_;
    if (policy_.offload) {
      further.run_until(plan, "offload");
      name_offloaded(plan, further.module(), all_activations(), {});
    }
    return least_bytes(further.step(plan));
  }
  std::optional<std::size_t> all_activations() const {
    return moves_to_fit() ? std::optional(std::numeric_limits<std::size_t>::max()) : std::nullopt;
  }

  // A plan for trials: with the least staging where that gives way.
  Plan for_trial() const {
    Plan plan = plan_;
    if (policy_.limit > 0 && policy_.staging_gives_way) plan.staging = std::min(plan.staging, io::kStagingAlignment);
    return plan;
  }

  void decide_recompute() {
    plan_.recompute.emplace();
    compilation_.run_until(plan_, "remat");
    const ir::Graph& micro = compilation_.module().graph("micro");
    const passes::Chain chain = find_chain(micro);
    if (chain.segments.empty()) return;  // a stage that only passes on what it receives
    const RematPlan remat = remat_plan(micro, chain);
    plan_.recompute = decided_.recompute = forgotten(micro, chain, remat);
    decided_.groups = remat.groups.size();
    // Of `optimal` that depends on what `sqrt` would need.
    const bool optimal = policy_.remat.kind == RematPolicy::Kind::optimal;
    decided_.recomputes =
        recomputes(micro, chain, optimal ? plan_remat(chain, {.kind = RematPolicy::Kind::sqrt}) : remat);
  }

  // What goes past the cuts is saved: it would be recomputed from the first on.
  std::vector<std::string> forgotten(const ir::Graph& micro, const passes::Chain& chain, const RematPlan& remat) const {
    std::vector<std::string> names = forgotten_names(micro, chain, remat);
    const std::vector<bool> free = passes::free_values(compilation_.module(), micro);
    std::set<std::string> past;
    for (std::size_t v = 0; v < free.size(); ++v)
      if (free[v]) past.insert(micro.values[v].name);
    std::erase_if(names, [&](const std::string& name) { return past.contains(name); });
    return names;
  }

  // The order of the actions says whether gradients follow at once where the model ends.
  passes::Chain find_chain(const ir::Graph& micro) const {
    passes::Chain chain = passes::find_chain(micro, passes::free_values(compilation_.module(), micro));
    if (chain.segments.empty() || !chain.segments.back().gradients_follow) return chain;
    const std::int32_t chunk = micro.nodes[ir::index(chain.nodes.back())].stage;
    using Kind = program::Action::Kind;
    const std::vector<program::Action> actions = compilation_.actions(plan_);
    for (std::size_t a = 0; a < actions.size(); ++a)
      if (actions[a].kind == Kind::forward && actions[a].chunk == chunk &&
          (a + 1 == actions.size() || actions[a + 1] != program::Action{Kind::backward, actions[a].micro, chunk}))
        chain.segments.back().gradients_follow = false;
    return chain;
  }

  RematPlan remat_plan(const ir::Graph& micro, const passes::Chain& chain) {
    if (policy_.remat.kind != RematPolicy::Kind::optimal) return plan_remat(chain, policy_.remat);
    if (hopeless_) return plan_remat(chain, {.kind = RematPolicy::Kind::full});
    const auto tried = [&](const Saving& saving) {
      Plan plan = for_trial();
      plan.recompute = forgotten(micro, chain, saving.remat);
      if (!policy_.offload) return measured(compilation_.step(plan));
      Compilation further = compilation_;
      further.run_until(plan, "offload");
      name_offloaded(plan, further.module(), moves_to_fit() ? std::optional(saving.moved) : std::nullopt, {});
      return measured(further.step(plan));
    };
    if (moves_to_fit()) {
      decided_.choice = fastest_within_limit(micro, chain, policy_.limit, rates_, tried);
      return decided_.choice->saving.remat;
    }
    return optimal_remat(micro, chain, policy_.limit, rates_,
                         [&](const RematPlan& remat) {
                           return tried({remat, 0}).peak;
                         })
        .plan;
  }

  void name_offloaded(Plan& plan, const ir::Module& module, std::optional<std::size_t> activations,
                      std::optional<std::size_t> parameters) const {
    if (policy_.offload->activations && module.has_graph("micro"))
      plan.offload->activations = activations_to_offload(module.graph("micro"), *policy_.offload, activations);
    if (policy_.offload->weights || policy_.offload->optimizer)
      plan.offload->states = states_to_offload(module, *policy_.offload, parameters);
    plan.offload->reloads = states_to_reload(module, plan.offload->states, rates_);
  }

  void decide_offload() {
    compilation_.run_until(plan_, "offload");
    const ir::Module& module = compilation_.module();
    const auto tried = [&](std::optional<std::size_t> activations, std::optional<std::size_t> parameters) {
      Plan plan = for_trial();
      name_offloaded(plan, module, activations, parameters);
      return measured(compilation_.step(plan));
    };
    std::optional<std::size_t> activations = all_activations();
    if (moves_to_fit() && !hopeless_) {
      if (!decided_.choice)
        decided_.choice =
            moved_to_fit(policy_.limit, {}, [&](const Saving& saving) { return tried(saving.moved, {}); });
      activations = decided_.choice->saving.moved;
    }
    std::optional<std::size_t> parameters;
    if (keeps_to_fit() && !hopeless_)
      parameters =
          fewest_parameters([&](std::size_t count) { return tried(activations, count).peak <= policy_.limit; });
    name_offloaded(plan_, module, activations, parameters);
    decided_.activations = plan_.offload->activations;
    decided_.states = plan_.offload->states;
  }

  // The parameters whose states must be offloaded so that the step fits; all of them where not even that is enough.
  std::size_t fewest_parameters(const std::function<bool(std::size_t)>& fits) const {
    const std::vector<ir::State>& states = compilation_.module().states;
    auto fewest = static_cast<std::size_t>(
        std::count_if(states.begin(), states.end(), [](const ir::State& state) { return state.trained; }));
    for (std::size_t least = 0; least < fewest;) {
      const std::size_t middle = least + (fewest - least) / 2;
      if (fits(middle))
        fewest = middle;
      else
        least = middle + 1;
    }
    return fewest;
  }

  Plan plan_;
  const MemoryPolicy& policy_;
  cost::Rates rates_;
  bool trains_;
  bool hopeless_ = false;  // nothing that may be chosen fits
  Compilation compilation_;
  Decided decided_;
};

// Every role of a plan, decided by itself.
std::vector<Decided> decide_roles(const Compilation& common, const Plan& open, const MemoryPolicy& policy,
                                  bool trains) {
  std::vector<Decided> all;
  for (const passes::Places& at : compiler::role_places(open)) {
    Compilation own = common;
    own.choose_role(at);
    all.push_back(StageDecision(std::move(own), open, policy, trains).run());
  }
  return all;
}

void add_names(std::vector<std::string>& to, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
}

// Places along h and w share one list of names: what one of them recomputes none of them saves. So what they offload is
// decided again when all is known that is recomputed.
void offload_what_is_saved(const Compilation& common, const Plan& open, const MemoryPolicy& policy,
                           std::vector<Decided>& roles) {
  Plan settled = open;
  settled.recompute.emplace();
  std::set<std::string> saved;
  for (const Decided& decided : roles) {
    add_names(*settled.recompute, decided.recompute);
    saved.insert(decided.activations.begin(), decided.activations.end());
  }
  const auto is_saved = [&](const std::string& name) { return saved.contains(name); };
  if (std::none_of(settled.recompute->begin(), settled.recompute->end(), is_saved)) return;
  MemoryPolicy offload_alone = policy;
  offload_alone.remat = {};
  std::vector<Decided> again = decide_roles(common, settled, offload_alone, true);
  for (std::size_t role = 0; role < roles.size(); ++role) {
    roles[role].activations = std::move(again[role].activations);
    roles[role].states = std::move(again[role].states);
  }
}

bool any_recomputes(const std::vector<Decided>& roles) {
  return std::any_of(roles.begin(), roles.end(), [](const Decided& d) { return d.recomputes; });
}

// Says why, and which policy does recompute something.
void refuse_to_recompute_nothing(const Compilation& common, const Plan& open, const RematPolicy& policy,
                                 std::size_t groups) {
  using Kind = RematPolicy::Kind;
  const std::vector<RematPolicy> others = {
      {.kind = Kind::full, .name = "full"},
      {.kind = Kind::every, .layers = 2, .name = "every:2"},
      {.kind = Kind::every, .layers = 3, .name = "every:3"},
      {.kind = Kind::every, .layers = 4, .name = "every:4"},
      {.kind = Kind::sqrt, .name = "sqrt"},
      {.kind = Kind::selective, .name = "selective"},
  };
  const auto works = [&](const RematPolicy& other) {
    return other.name != policy.name && any_recomputes(decide_roles(common, open, {.remat = other}, true));
  };
  const auto near = std::find_if(others.begin(), others.end(), works);
  std::string why = "no cheap value is saved for the gradients";
  if (policy.kind != Kind::selective)
    why = groups > 1 ? "of all but its last group of layers, which is always saved, gradients read what begins a group "
                       "and nothing else, and that is saved"
                     : "the last group of layers is always saved, and there is no other";
  refuse("memory.remat = \"{}\" recomputes nothing of this model: {}; the nearest is memory.remat = \"{}\"",
         policy.name, why, near == others.end() ? "none" : near->name);
}

// A plan names what the model's forward phase makes, and not what a stage makes of its messages.
std::vector<std::string> known_of(std::vector<std::string> names, const ir::Module& common, const Plan& plan) {
  if (plan.stages() == 1 || plan.is_spatial()) return names;
  const ir::Graph& micro = common.graph("micro");
  std::set<std::string> made;
  for (const ir::Node& node : micro.nodes)
    if (node.phase == ir::Phase::forward)
      for (const ir::ValueId id : node.outputs) made.insert(micro.value(id).name);
  std::erase_if(names, [&](const std::string& name) { return !made.contains(name); });
  return names;
}

// What ranks beyond the mesh offload: their states, but for what they are sent.
std::vector<std::string> kept_states(const ir::Module& module, const OffloadPolicy& policy) {
  std::vector<std::string> names = states_to_offload(module, policy, {});
  std::erase_if(names, [&](const std::string& name) {
    return module.state(module.find_state(name)).category == ir::Category::gradients;
  });
  return names;
}

std::optional<Choice> decide_memory(const compiler::Graphs& graphs, Plan& plan, const MemoryPolicy& policy) {
  const bool trains = graphs.purpose == compiler::Purpose::train;
  const bool recompute = trains && policy.remat.kind != RematPolicy::Kind::none;
  if (!recompute && !policy.offload) return {};
  if (trains && policy.offload) check_offload_policy(graphs.module.graph("micro"), *policy.offload);
  const Plan open = plan;
  Compilation common(graphs);
  const std::vector<passes::Places> roles = compiler::role_places(open);
  if (roles.size() > 1) common.run_until(open, compiler::first_pass_by_place(open));
  if (recompute) plan.recompute.emplace();
  std::optional<Choice> choice;
  std::vector<Decided> all = decide_roles(common, open, policy, trains);
  if (recompute && policy.offload && open.is_spatial()) offload_what_is_saved(common, open, policy, all);
  for (std::size_t role = 0; role < roles.size(); ++role) {
    const passes::Places& at = roles[role];
    const Decided& decided = all[role];
    if (recompute) add_names(*plan.recompute, known_of(decided.recompute, common.module(), open));
    if (policy.offload) {
      add_names(plan.offload->activations, decided.activations);
      add_names(plan.offload->states, decided.states);
      if (policy.offload->optimizer)
        for (const ir::Module& module : compiler::modules_beyond(graphs, open, at))
          add_names(plan.offload->states, kept_states(module, *policy.offload));
    }
    // What is said of the run is said of its fullest role.
    if (decided.choice && (!choice || decided.choice->trial.peak > choice->trial.peak)) choice = decided.choice;
  }
  if (policy.offload) decide_reloads(graphs, plan);
  // Under a limit it may be that all fits.
  const bool must = policy.remat.kind != RematPolicy::Kind::optimal || policy.limit == 0;
  if (recompute && must && !any_recomputes(all)) {
    std::size_t groups = 0;
    for (const Decided& decided : all) groups = std::max(groups, decided.groups);
    refuse_to_recompute_nothing(common, open, policy.remat, groups);
  }
  return choice;
}

// What a step of each stage needs, of its place along h and w that needs most.
std::vector<std::uint64_t> stage_bytes(const compiler::Graphs& graphs, Plan plan, const MemoryPolicy& policy) {
  if (policy.staging_gives_way) plan.staging = std::min(plan.staging, io::kStagingAlignment);
  Compilation common(graphs);
  common.run_until(plan, compiler::first_pass_by_place(plan));
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(plan.stages()), 0);
  for (const passes::Places& at : compiler::role_places(plan)) {
    Compilation own = common;
    own.choose_role(at);
    std::uint64_t& most = bytes[static_cast<std::size_t>(at.at(ir::kPipelineAxis))];
    most = std::max<std::uint64_t>(most, own.step(plan).arena_bytes);
  }
  return bytes;
}

std::uint64_t fullest(const std::vector<std::uint64_t>& stages) {
  return *std::max_element(stages.begin(), stages.end());
}

// With the plan's cuts: each stage of zero-bubble:auto holds as many micro-batches as fit.
std::optional<Choice> decide_with_cuts(const compiler::Graphs& graphs, Plan& plan, const MemoryPolicy& policy) {
  const bool chooses_schedule = plan.stages() > 1 && graphs.purpose == compiler::Purpose::train && policy.limit > 0 &&
                                plan.pipeline.kind == program::PipelineName::Kind::zero_bubble_auto;
  if (!chooses_schedule) return decide_memory(graphs, plan, policy);
  const Plan open = plan;
  std::optional<Choice> choice;
  const auto count = static_cast<std::size_t>(plan.stages());
  // Beyond what ZB-H2 holds nothing is gained.
  std::vector<int> least(count, 1);
  std::vector<int> most(count, std::min(2 * plan.stages() - 1, graphs.micro_batches));
  const auto hold = [&](const std::vector<int>& held) {
    plan = open;
    plan.max_held = held;
    choice = decide_memory(graphs, plan, policy);
    return stage_bytes(graphs, plan, policy);
  };
  // All stages are halved in together: what a stage may hold decides most of what it needs.
  while (least != most) {
    std::vector<int> middle(count);
    for (std::size_t i = 0; i < count; ++i) middle[i] = least[i] + (most[i] - least[i] + 1) / 2;
    const std::vector<std::uint64_t> bytes = hold(middle);
    for (std::size_t i = 0; i < count; ++i) {
      if (least[i] == most[i]) continue;
      if (bytes[i] <= policy.limit)
        least[i] = middle[i];
      else
        most[i] = middle[i] - 1;
    }
  }
  // But not all: where another has changed what fits, the fullest give way.
  for (std::vector<std::uint64_t> bytes = hold(least); fullest(bytes) > policy.limit; bytes = hold(least)) {
    const std::vector<int> before = least;
    for (std::size_t i = 0; i < count; ++i)
      if (bytes[i] > policy.limit) least[i] = std::max(1, least[i] - 1);
    if (least == before) break;
  }
  return choice;
}

// Where stages of equal time do not fit the limit, others may. Leaves the plan that needs least of those that were
// tried, where none fits.
std::optional<Choice> move_cuts(const compiler::Graphs& graphs, const Plan& open, Plan& plan,
                                std::optional<Choice> choice, const MemoryPolicy& policy) {
  std::vector<std::uint64_t> bytes = stage_bytes(graphs, plan, policy);
  std::uint64_t least = fullest(bytes);
  if (least <= policy.limit) return choice;
  // Nothing is searched for where all stages together need far more than they may.
  if (std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}) / 2 > policy.limit * bytes.size()) return choice;
  // As many as make estimates good; each of them lowers all stages.
  constexpr int kTries = 5;
  FittingCuts fitting(graphs, plan, policy.limit);
  std::set<std::vector<std::string>> tried = {plan.stage_cuts};
  Plan moved = plan;
  for (int i = 0; i < kTries && least > policy.limit; ++i) {
    const std::vector<std::string> cuts = fitting.next(moved.stage_cuts, bytes);
    if (!tried.insert(cuts).second) break;
    moved = open;
    moved.stage_cuts = cuts;
    std::optional<Choice> other;
    try {
      other = decide_with_cuts(graphs, moved, policy);
    } catch (const Error& e) {
      if (e.kind() != Error::Kind::request) throw;
      break;  // with these cuts nothing is recomputed that is to be
    }
    bytes = stage_bytes(graphs, moved, policy);
    if (fullest(bytes) >= least) continue;
    least = fullest(bytes);
    plan = moved;
    choice = other;
  }
  return choice;
}

// Every role's module as the offload pass finds it. Nothing where no state is offloaded.
void each_before_offload(const compiler::Graphs& graphs, const Plan& plan,
                         const std::function<void(const ir::Module&)>& f) {
  if (plan.offload->states.empty()) return;
  Compilation common(graphs);
  const std::vector<passes::Places> roles = compiler::role_places(plan);
  if (roles.size() > 1) common.run_until(plan, compiler::first_pass_by_place(plan));
  for (const passes::Places& at : roles) {
    Compilation own = common;
    own.choose_role(at);
    own.run_until(plan, "offload");
    f(own.module());
  }
}

}  // namespace

void decide_reloads(const compiler::Graphs& graphs, Plan& plan) {
  std::vector<std::string> reloads;
  each_before_offload(graphs, plan, [&](const ir::Module& module) {
    add_names(reloads, states_to_reload(module, plan.offload->states, cost::Rates::of(plan.device)));
  });
  plan.offload->reloads = std::move(reloads);
}

std::vector<std::string> possible_reloads(const compiler::Graphs& graphs, const Plan& plan) {
  std::vector<std::string> names;
  each_before_offload(graphs, plan, [&](const ir::Module& module) {
    for (const ir::Graph& graph : module.graphs)
      for (const passes::OffloadedRead& read : passes::offloaded_reads(module, graph, plan.offload->states))
        names.push_back(passes::reload_name(module.state(graph.value(read.state).state).name,
                                            graph.value(graph.nodes[read.node].outputs.front()).name));
  });
  return names;
}

std::optional<Choice> decide(const compiler::Graphs& graphs, Plan& plan, const MemoryPolicy& policy) {
  const bool cuts = plan.stage_cuts.empty();
  if (cuts) plan.stage_cuts = stage_cuts(graphs, plan);
  const bool moves = cuts && plan.stages() > 1 && plan.stage_layers.empty() && policy.limit > 0 &&
                     graphs.purpose == compiler::Purpose::train;
  if (!moves) return decide_with_cuts(graphs, plan, policy);
  const Plan open = plan;
  std::optional<Choice> choice = decide_with_cuts(graphs, plan, policy);
  return move_cuts(graphs, open, plan, std::move(choice), policy);
}

}  // namespace trireme::planner
