#include "trireme/passes/validate.h"

#include <map>
#include <set>
#include <string_view>
#include <unordered_set>

#include "trireme/core/error.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

std::set<ir::StateId> written_by(const ir::Graph& graph) {
  std::set<ir::StateId> states;
  for (const ir::Write& w : graph.writes) states.insert(w.state);
  return states;
}

std::set<ir::StateId> read_by(const ir::Graph& graph) {
  std::set<ir::StateId> states;
  for (const ir::ValueInfo& v : graph.values)
    if (v.kind == ir::ValueInfo::Kind::state) states.insert(v.state);
  return states;
}

bool may_set_state(const std::string& graph) {
  return graph == "update" || graph == kWarmUpdate || graph == "init" || graph == "refresh" || is_state_graph(graph);
}

}  // namespace

void Validate::run(ir::Module& module) const {
  const std::set<ir::StateId> updated = written_by(module.graph("update"));
  const std::set<ir::StateId> update_reads = read_by(module.graph("update"));
  const std::set<ir::StateId> micro_writes = written_by(module.graph("micro"));
  std::unordered_set<std::string_view> names;
  for (const ir::State& state : module.states) names.insert(state.name);
  // By state: the graph that sets it, where that may not.
  std::map<ir::StateId, const ir::Graph*> set_elsewhere;
  for (const ir::Graph& graph : module.graphs)
    if (!may_set_state(graph.name))
      for (const ir::StateId id : written_by(graph)) set_elsewhere.emplace(id, &graph);
  for (std::size_t i = 0; i < module.states.size(); ++i) {
    const ir::State& state = module.states[i];
    const auto id = static_cast<ir::StateId>(i);
    if (state.trained && !names.contains(gradient_name(state.name))) fail("parameter '{}' has no gradient", state.name);
    if (state.trained && !updated.contains(id)) fail("parameter '{}' is never updated", state.name);
    if (!state.derived_from.empty() && !updated.contains(id))
      fail("'{}' is not rewritten after its source '{}' changes", state.name, state.derived_from);
    if (state.step_local && update_reads.contains(id) && !micro_writes.contains(id))
      fail("the update reads '{}', which no micro-batch writes", state.name);
    if (!state.saved || state.step_local) continue;
    if (const auto graph = set_elsewhere.find(id); graph != set_elsewhere.end())
      fail("graph '{}' sets '{}', which only the update may", graph->second->name, state.name);
  }
}

}  // namespace trireme::passes
