#include "trireme/passes/observe_ranges.h"

#include <map>
#include <set>

#include "trireme/passes/rebuild.h"

namespace trireme::passes {

void ObserveRanges::run(ir::Module& module) const {
  std::set<std::string> wanted;
  for (const QuantizedWeight& weight : quantized_weights(module, options_.weights))
    if (!weight.table) wanted.insert(weight.name);
  Rebuild rebuild(module, options_.graph);
  std::map<ir::StateId, ir::ValueId> seen;  // by range: what the products so far have made of it
  for (const ir::Node& node : rebuild.old().nodes) {
    rebuild.add_like(node, rebuild.mapped(node.inputs));
    if (node.op->name != "matmul") continue;
    const ir::ValueInfo& info = rebuild.old().value(node.inputs[1]);
    if (info.kind != ir::ValueInfo::Kind::state) continue;
    const std::string weight = module.state(info.state).name;
    if (!wanted.contains(weight)) continue;
    ir::StateId range = module.find_state(state_of(weight));
    if (range == ir::kNone) {
      ir::State state;
      state.name = state_of(weight);
      state.type = {DType::f32, {}};
      state.category = ir::Category::statistics;
      state.saved = false;
      range = module.add_state(std::move(state));
    }
    const auto before = seen.find(range);
    const ir::ValueId so_far = before == seen.end() ? rebuild.fresh().read(module, range) : before->second;
    seen[range] =
        rebuild.add("largest_magnitude", {rebuild.mapped(node.inputs[0]), so_far}, {}, state_of(weight) + ".seen", node)
            .front();
  }
  for (const auto& [range, value] : seen) rebuild.fresh().writes.push_back({range, value, ir::Write::Mode::set});
  rebuild.finish();
}

}  // namespace trireme::passes
