#include "trireme/passes/round_weights.h"

#include <map>

#include "trireme/core/error.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::ValueId;

// Each use has a rounding of its own, since uses may be in different stages; clean-up merges those of one stage.
void round(ir::Module& module, const std::string& graph, const std::map<std::string, QuantizedWeight>& weights) {
  Rebuild rebuild(module, graph);
  for (const Node& node : rebuild.old().nodes) {
    std::vector<ValueId> inputs = rebuild.mapped(node.inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId old = node.inputs[i];
      if (old == kNone || rebuild.old().value(old).kind != ir::ValueInfo::Kind::state) continue;
      const auto weight = weights.find(module.state(rebuild.old().value(old).state).name);
      if (weight == weights.end()) continue;
      ir::Attributes attributes = ops::code_attributes(weight->second.format);
      const Shape& shape = weight->second.type.shape;
      std::int64_t split = 0;
      for (std::int64_t rows = 1; rows < weight->second.n; ++split) rows *= shape[static_cast<int>(split)];
      attributes.set("split", split);
      inputs[i] = rebuild.add("round_to_codes", {inputs[i]}, attributes, weight->first + ".rounded", node).front();
    }
    rebuild.add_like(node, inputs);
  }
  rebuild.finish();
}

}  // namespace

void RoundWeights::run(ir::Module& module) const {
  std::map<std::string, QuantizedWeight> weights;
  for (const QuantizedWeight& weight : quantized_weights(module, options_)) weights[weight.name] = weight;
  if (weights.empty())
    refuse("{} = \"{}\": the model has no weights of linear layers", options_.key, options_.format.str());
  for (const std::string& graph : options_.graphs)
    if (module.has_graph(graph)) round(module, graph, weights);
}

}  // namespace trireme::passes
