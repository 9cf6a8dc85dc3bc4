#include "trireme/planner/decide.h"

#include <algorithm>

#include "trireme/io/shard_writer.h"
#include "trireme/planner/predict.h"

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

class Decision {
 public:
  Decision(const compiler::Graphs& graphs, Plan& plan, const MemoryPolicy& policy)
      : plan_(plan),
        policy_(policy),
        rates_(passes::CostRates::of(plan.device)),
        trains_(graphs.purpose == compiler::Purpose::train),
        compilation_(graphs) {}

  std::optional<Choice> run() {
    if (trains_ && policy_.remat.kind != RematPolicy::Kind::none) decide_recompute();
    if (policy_.offload) decide_offload();
    return choice_;
  }

 private:
  bool chooses() const {
    return policy_.limit > 0 && trains_ && policy_.offload && policy_.offload->which == OffloadPolicy::Which::dynamic;
  }
  // As many activations are offloaded as the limit needs.
  bool moves_to_fit() const { return chooses() && policy_.offload->activations; }
  // Weights and optimizer states that there is room for stay.
  bool keeps_to_fit() const { return chooses() && (policy_.offload->weights || policy_.offload->optimizer); }

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
    plan_.recompute = forgotten_names(micro, remat_plan(micro));
  }

  RematPlan remat_plan(const ir::Graph& micro) {
    if (policy_.remat.kind != RematPolicy::Kind::optimal) return plan_remat(micro, policy_.remat);
    const auto tried = [&](const Saving& saving) {
      Plan plan = for_trial();
      plan.recompute = forgotten_names(micro, saving.remat);
      if (!policy_.offload) return measured(compilation_.step(plan));
      Compilation further = compilation_;
      further.run_until(plan, "offload");
      name_offloaded(plan, further.module(), moves_to_fit() ? std::optional(saving.moved) : std::nullopt, {});
      return measured(further.step(plan));
    };
    if (moves_to_fit()) {
      choice_ = fastest_within_limit(micro, policy_.limit, rates_, tried);
      return choice_->saving.remat;
    }
    return optimal_remat(micro, policy_.limit, rates_,
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
  }

  void decide_offload() {
    compilation_.run_until(plan_, "offload");
    const ir::Module& module = compilation_.module();
    const auto tried = [&](std::optional<std::size_t> activations, std::optional<std::size_t> parameters) {
      Plan plan = for_trial();
      name_offloaded(plan, module, activations, parameters);
      return measured(compilation_.step(plan));
    };
    std::optional<std::size_t> activations;
    if (moves_to_fit()) {
      if (!choice_)
        choice_ = moved_to_fit(policy_.limit, {}, [&](const Saving& saving) { return tried(saving.moved, {}); });
      activations = choice_->saving.moved;
    }
    std::optional<std::size_t> parameters;
    if (keeps_to_fit())
      parameters =
          fewest_parameters([&](std::size_t count) { return tried(activations, count).peak <= policy_.limit; });
    name_offloaded(plan_, module, activations, parameters);
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

  Plan& plan_;
  const MemoryPolicy& policy_;
  passes::CostRates rates_;
  bool trains_;
  Compilation compilation_;
  std::optional<Choice> choice_;
};

}  // namespace

std::optional<Choice> decide(const compiler::Graphs& graphs, Plan& plan, const MemoryPolicy& policy) {
  return Decision(graphs, plan, policy).run();
}

}  // namespace trireme::planner
