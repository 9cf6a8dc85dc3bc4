#include "trireme/passes/initial.h"

#include "trireme/core/error.h"
#include "trireme/core/rng.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::Phase;
using ir::State;
using ir::StateId;
using ir::ValueId;

const char* kind_name(ir::Init::Kind kind) {
  switch (kind) {
    case ir::Init::Kind::normal: return "normal";
    case ir::Init::Kind::uniform: return "uniform";
    case ir::Init::Kind::constant: return "constant";
    case ir::Init::Kind::zeros:
    case ir::Init::Kind::derived: break;
  }
  return "zeros";
}

ValueId derived(ir::Module& module, Graph& graph, ValueId source, const State& state) {
  if (graph.type(source) == state.type) return source;
  return graph
      .add(module.registry->at("cast"), {source}, {{"to", std::string(name_of(state.type.dtype))}},
           state.name + ".refresh", Phase::forward)
      .front();
}

}  // namespace

void InitialState::run(ir::Module& module) const {
  Graph init;
  init.name = "init";
  Graph refresh;
  refresh.name = "refresh";
  const ValueId seed = init.add_input("seed", {DType::i64, {}});
  std::vector<ValueId> start(module.states.size(), ir::kNone);
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    const State& state = module.states[s];
    if (state.step_local || !state.derived_from.empty()) continue;
    const std::vector<std::int64_t> dims(state.type.shape.begin(), state.type.shape.end());
    const ir::Attributes attributes{{"kind", std::string(kind_name(state.init.kind))},
                                    {"a", state.init.a},
                                    {"site", static_cast<std::int64_t>(site_of(state.name))},
                                    {"shape", dims},
                                    {"dtype", std::string(name_of(state.type.dtype))}};
    start[s] =
        init.add(module.registry->at("random_init"), {seed}, attributes, state.name + ".init", Phase::forward).front();
    init.writes.push_back({static_cast<StateId>(s), start[s], ir::Write::Mode::set});
  }
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    const State& state = module.states[s];
    if (state.derived_from.empty()) continue;
    const StateId source = module.find_state(state.derived_from);
    init.writes.push_back({static_cast<StateId>(s),
                           derived(module, init, start[static_cast<std::size_t>(source)], state),
                           ir::Write::Mode::set});
    refresh.writes.push_back(
        {static_cast<StateId>(s), derived(module, refresh, refresh.read(module, source), state), ir::Write::Mode::set});
  }
  module.graphs.push_back(std::move(init));
  module.graphs.push_back(std::move(refresh));
}

}  // namespace trireme::passes
