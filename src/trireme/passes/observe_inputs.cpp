#include "trireme/passes/observe_inputs.h"

#include <set>

#include "trireme/passes/rebuild.h"

namespace trireme::passes {

using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;

void ObserveInputs::run(ir::Module& module) const {
  std::set<std::string> wanted;
  for (const QuantizedWeight& weight : quantized_weights(module, options_.weights)) wanted.insert(weight.name);
  Rebuild rebuild(module, options_.graph);
  for (const Node& node : rebuild.old().nodes) {
    rebuild.add_like(node, rebuild.mapped(node.inputs));
    const bool head = node.op->name == "linear_cross_entropy";
    if (node.op->name != "matmul" && !head) continue;
    const ir::ValueInfo& info = rebuild.old().value(node.inputs[1]);
    if (info.kind != ir::ValueInfo::Kind::state) continue;
    const std::string weight = module.state(info.state).name;
    if (wanted.erase(weight) == 0) continue;
    const Shape& x = rebuild.old().type(node.inputs[0]).shape;
    std::int64_t split = head ? -1 : node.attributes.integer("a_split");
    if (split == -1) split = x.rank() - 1;
    const Shape inner = x.slice(static_cast<int>(split), x.rank());
    ir::State state;
    state.name = state_of(weight);
    state.type = {DType::f32, inner + inner};
    state.category = ir::Category::statistics;
    state.saved = false;
    const StateId sums = module.add_state(std::move(state));
    const ValueId input = rebuild.mapped(node.inputs[0]);
    const ValueId added = rebuild
                              .add("matmul", {input, input, kNone, rebuild.fresh().read(module, sums)},
                                   {{"trans_a", true}, {"a_split", split}, {"b_split", split}, {"add", true}},
                                   state_of(weight) + ".sum", node)
                              .front();
    rebuild.fresh().writes.push_back({sums, added, ir::Write::Mode::set});
  }
  rebuild.finish();
}

}  // namespace trireme::passes
