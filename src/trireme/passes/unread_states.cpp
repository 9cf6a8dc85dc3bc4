#include "trireme/passes/unread_states.h"

namespace trireme::passes {

using ir::index;
using ir::kNone;
using ir::StateId;

void drop_unread_states(ir::Module& module, const std::function<bool(const ir::State&)>& among) {
  std::vector<bool> read(module.states.size(), false);
  for (ir::Graph& graph : module.graphs) {
    graph.compact();  // what nobody mentions is gone
    for (const ir::ValueInfo& value : graph.values)
      if (value.kind == ir::ValueInfo::Kind::state) read[index(value.state)] = true;
    for (const ir::Write& write : graph.writes) read[index(write.state)] = true;
  }
  for (const ir::State& state : module.states)
    if (!state.derived_from.empty()) read[index(module.find_state(state.derived_from))] = true;
  std::vector<StateId> number(module.states.size(), kNone);
  std::vector<ir::State> kept;
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    if (!read[s] && among(module.states[s])) continue;
    number[s] = static_cast<StateId>(kept.size());
    kept.push_back(std::move(module.states[s]));
  }
  module.states = std::move(kept);
  for (ir::Graph& graph : module.graphs) {
    for (ir::ValueInfo& value : graph.values)
      if (value.kind == ir::ValueInfo::Kind::state) value.state = number[index(value.state)];
    for (ir::Write& write : graph.writes) write.state = number[index(write.state)];
  }
}

}  // namespace trireme::passes
