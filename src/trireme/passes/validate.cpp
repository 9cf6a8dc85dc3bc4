#include "trireme/passes/validate.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

bool written(const ir::Graph& graph, ir::StateId state) {
  return std::any_of(graph.writes.begin(), graph.writes.end(), [&](const ir::Write& w) { return w.state == state; });
}

bool read(const ir::Graph& graph, ir::StateId state) {
  return std::any_of(graph.values.begin(), graph.values.end(),
                     [&](const ir::ValueInfo& v) { return v.kind == ir::ValueInfo::Kind::state && v.state == state; });
}

bool may_set_state(const std::string& graph) {
  return graph == "update" || graph == kWarmUpdate || graph == "init" || graph == "refresh" || is_state_graph(graph);
}

}  // namespace

void Validate::run(ir::Module& module) const {
  const ir::Graph& update = module.graph("update");
  const ir::Graph& micro = module.graph("micro");
  for (std::size_t i = 0; i < module.states.size(); ++i) {
    const ir::State& state = module.states[i];
    const auto id = static_cast<ir::StateId>(i);
    if (state.trained && module.find_state(gradient_name(state.name)) == ir::kNone)
      fail("parameter '{}' has no gradient", state.name);
    if (state.trained && !written(update, id)) fail("parameter '{}' is never updated", state.name);
    if (!state.derived_from.empty() && !written(update, id))
      fail("'{}' is not rewritten after its source '{}' changes", state.name, state.derived_from);
    if (state.step_local && read(update, id) && !written(micro, id))
      fail("the update reads '{}', which no micro-batch writes", state.name);
    if (!state.saved || state.step_local) continue;
    for (const ir::Graph& graph : module.graphs)
      if (written(graph, id) && !may_set_state(graph.name))
        fail("graph '{}' sets '{}', which only the update may", graph.name, state.name);
  }
}

}  // namespace trireme::passes
