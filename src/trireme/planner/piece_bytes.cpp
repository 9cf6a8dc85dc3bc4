#include "trireme/planner/piece_bytes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "trireme/passes/saved_values.h"

namespace trireme::planner {
namespace {

// A state, its gradient, its optimizer's and its copies belong to one parameter.
std::string parameter_of(const ir::State& state) {
  return state.derived_from.empty() ? state.name.substr(0, state.name.find('/')) : state.derived_from;
}

}  // namespace

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  masters += other.masters;
  weights += other.weights;
  gradients += other.gradients;
  optimizer += other.optimizer;
  return *this;
}

double StateBytes::sharded(int zero, int replicas) const {
  const auto share = [&](int stage) { return zero >= stage ? 1.0 / replicas : 1.0; };
  return (masters + optimizer) * share(1) + gradients * share(2) + weights * share(3);
}

std::vector<PieceBytes> piece_bytes(const ir::Module& module, std::size_t pieces) {
  const ir::Graph& micro = module.graph("micro");
  std::vector<PieceBytes> all(pieces);
  const auto piece = [&](std::int32_t stage) -> PieceBytes& { return all[std::min(ir::index(stage), pieces - 1)]; };
  for (const passes::SavedValue& saved : passes::saved_values(micro))
    piece(micro.nodes[ir::index(saved.producer)].stage).saved +=
        static_cast<double>(micro.value(saved.value).type.bytes());
  // By the pieces whose nodes read a parameter or one of its copies; the first has it, the others have it too.
  std::map<std::string, std::set<std::int32_t>> readers;
  std::set<std::string> copied;
  for (const ir::State& state : module.states)
    if (!state.derived_from.empty()) copied.insert(state.derived_from);
  for (const ir::Node& node : micro.nodes)
    for (const ir::ValueId id : node.inputs)
      if (id != ir::kNone && micro.value(id).kind == ir::ValueInfo::Kind::state)
        readers[parameter_of(module.state(micro.value(id).state))].insert(node.stage);
  for (const ir::State& state : module.states) {
    const auto found = readers.find(parameter_of(state));
    if (found == readers.end()) continue;
    const auto bytes = static_cast<double>(state.storage_bytes());
    StateBytes own;
    if (state.category == ir::Category::gradients) own.gradients = bytes;
    if (state.category == ir::Category::optimizer) own.optimizer = bytes;
    if (state.category == ir::Category::weights) (copied.contains(state.name) ? own.masters : own.weights) = bytes;
    bool first = true;
    for (const std::int32_t stage : found->second) {
      (first ? piece(stage).state : piece(stage).tied) += own;
      first = false;
    }
  }
  return all;
}

}  // namespace trireme::planner
