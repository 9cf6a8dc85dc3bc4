#include "trireme/passes/own_momentum.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;

constexpr std::string_view kMomentum = "/momentum";
constexpr std::string_view kOwnMomentum = "/own_momentum";

std::string own_name(std::string_view parameter) { return std::string(parameter) + std::string(kOwnMomentum); }

}  // namespace

void own_momenta(ir::Module& module, const std::string& axis) {
  ir::Graph& init = module.graph("init");
  const std::set<std::string> summed = parameters_summed_over(module, module.graph("update"), axis);
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    ir::State& state = module.states[s];
    if (state.category != ir::Category::optimizer || !state.name.ends_with(kMomentum)) continue;
    const std::string parameter = state.name.substr(0, state.name.size() - kMomentum.size());
    if (!summed.contains(parameter)) continue;  // each rank has all terms of what it updates
    state.name = own_name(parameter);
    const std::int64_t elements = state.type.elements();
    state.type.shape = {1, elements};
    const std::vector<std::string> others = sharding_axes(module.mesh, axis);
    std::int64_t ranks = 1;
    for (const std::string& other : others) ranks *= module.mesh.size_of(other);
    state.whole = {module.mesh.size_of(axis), elements * ranks};
    state.sharding.dims = {{axis}, others};
    const ir::Write& write = *std::find_if(init.writes.begin(), init.writes.end(),
                                           [&](const ir::Write& w) { return w.state == static_cast<StateId>(s); });
    for (Node& node : init.nodes)
      if (node.outputs.front() == write.value) {
        node.attributes.set("shape", dims(state.type.shape));
        ir::ValueInfo& value = init.value(write.value);
        value.type = state.type;
        value.sharding = {};  // of the parameter's dimensions, which it no longer has
      }
  }
}

bool is_own_momentum(const ir::State& state) { return state.name.ends_with(kOwnMomentum); }

std::string shared_momentum(const std::string& own_momentum) {
  return own_momentum.substr(0, own_momentum.size() - kOwnMomentum.size()) + std::string(kMomentum);
}

ValueId own_momentum(GradientSums& sums, const GradientSums::Sum& sum) {
  return sums.own_state(own_name(sum.parameter), sum.type.elements());
}

OwnMomentum next_momentum(GradientSums& sums, const GradientSums::Sum& sum, ValueId clip) {
  const double decay = sums.update_of(sum.parameter).attributes.real("momentum");
  const ValueId old = own_momentum(sums, sum);
  return {old, sums.add("weighted_sum", {old, sum.own, clip, kNone},
                        {{"a_weight", decay}, {"shape", dims({1, sum.type.elements()})}}, sum.parameter + ".velocity")
                   .front()};
}

void descend(GradientSums& sums, const GradientSums::Sum& sum, ValueId direction, const OwnMomentum& own) {
  const Node& node = sums.update_of(sum.parameter);
  if (node.op->name != "sgd") fail("momenta of each rank's own are sgd's; the update is {}", node.op->name);
  sums.replace(node, [&sums, node, name = sum.parameter, direction, own] {
    Rebuild& rebuild = sums.rebuild();
    const auto given = rebuild.mapped(std::vector<ValueId>{node.inputs[0], node.inputs[3], node.inputs[5]});
    const auto made =
        sums.add("descend", {given[0], direction, kNone, given[1], kNone, given[2], sums.kept_of(name)},
                 {{"weight_decay", node.attributes.real("weight_decay")}, {"low", node.attributes.text("low")}},
                 name + ".descend");
    rebuild.map(node.outputs[0], made[0]);
    rebuild.map(
        node.outputs[1],
        sums.masked(name, sums.add("select", {given[2], own.fresh, own.old}, {}, name + ".momentum.kept").front()));
    if (node.outputs.size() > 2) rebuild.map(node.outputs[2], made[1]);
  });
}

}  // namespace trireme::passes
