#include "trireme/passes/loss_scale.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Module;
using ir::Node;
using ir::Phase;
using ir::StateId;
using ir::ValueId;

StateId add_count(Module& module, const std::string& name) {
  ir::State state;
  state.name = std::string(LossScale::kState) + "/" + name;
  state.type = {DType::f32, {}};
  state.category = ir::Category::scalars;
  return module.add_state(state);
}

}  // namespace

void LossScale::run(Module& module) const {
  const StateId scale = module.find_state(kState);
  if (scale == kNone) fail("no gradient starts from the state '{}'", kState);
  module.state(scale).init = ir::Init::constant(options_.start);
  const StateId good = add_count(module, "good");
  const StateId skipped = add_count(module, "skipped");

  Graph& g = module.graph("update");
  const auto clip =
      std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op->name == "clip_scale"; });
  if (clip == g.nodes.end()) fail("the update does not look at the gradients' norm");
  const auto at = clip - g.nodes.begin() + 1;
  const ValueId finite = clip->outputs[2];
  clip->inputs[2] = g.read(module, scale);

  std::vector<Node> added;
  const auto add = [&](const char* op, std::vector<ValueId> inputs, ir::Attributes attributes,
                       const std::string& name) {
    added.push_back(g.make_node(module.registry->at(op), std::move(inputs), std::move(attributes), name, Phase::update,
                                g.nodes[static_cast<std::size_t>(at) - 1].stage));
    return added.back().outputs;
  };
  const ValueId skipped_before = g.read(module, skipped);
  if (const auto step = g.find_input("step")) {
    const ValueId behind = add("scale", {skipped_before}, {{"factor", -1.0}}, "skipped").front();
    const ValueId updates = add("add", {*step, behind}, {}, "updates").front();
    for (Node& node : g.nodes) std::replace(node.inputs.begin(), node.inputs.end(), *step, updates);
  }
  const auto next = add("adaptive_scale", {g.read(module, scale), g.read(module, good), skipped_before, finite},
                        {{"window", options_.window}, {"low", kLowest}, {"high", kHighest}}, kState);
  g.nodes.insert(g.nodes.begin() + at, std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  const std::vector<StateId> states = {scale, good, skipped};
  for (std::size_t i = 0; i < states.size(); ++i) g.writes.push_back({states[i], next[i], ir::Write::Mode::set});
  g.outputs.push_back({kState, g.read(module, scale)});
}

}  // namespace trireme::passes
