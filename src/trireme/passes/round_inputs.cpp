#include "trireme/passes/round_inputs.h"

#include <set>

#include "trireme/passes/quantize_weights.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;

StateId scale_state(ir::Module& module, const std::string& name) {
  if (const StateId known = module.find_state(name); known != kNone) return known;
  ir::State state;
  state.name = name;
  state.type = {DType::f32, {}};
  state.category = ir::Category::weights;
  return module.add_state(std::move(state));
}

void round_graph(ir::Module& module, const std::string& graph, DType to) {
  Rebuild rebuild(module, graph);
  const std::set<ValueId> logits = logits_of(rebuild.old());
  const std::string suffix = QuantizedWeight{}.codes();
  for (const Node& node : rebuild.old().nodes) {
    std::vector<ValueId> inputs = rebuild.mapped(node.inputs);
    if (node.op->name != "quantized_linear" || logits.contains(node.outputs.front())) {
      rebuild.add_like(node, inputs);
      continue;
    }
    const std::string codes = module.state(rebuild.old().value(node.inputs[1]).state).name;
    const std::string weight = codes.substr(0, codes.size() - suffix.size());
    const ValueId scale = rebuild.fresh().read(module, scale_state(module, RoundInputs::state_of(weight)));
    const std::string label = rebuild.old().value(node.outputs.front()).name;
    const ValueId rounded = rebuild.add("round_to_int8", {inputs[0], scale}, {}, label + ".input", node).front();
    ir::Attributes attributes = node.attributes;
    attributes.set("to", std::string(name_of(to)));
    inputs.resize(4, kNone);
    rebuild.map(
        node.outputs.front(),
        rebuild.add("int8_linear", {rounded, inputs[1], inputs[2], scale, inputs[3]}, attributes, label, node).front());
  }
  rebuild.finish();
}

}  // namespace

void RoundInputs::run(ir::Module& module) const {
  for (const std::string& graph : options_.graphs)
    if (module.has_graph(graph)) round_graph(module, graph, options_.to);
}

}  // namespace trireme::passes
