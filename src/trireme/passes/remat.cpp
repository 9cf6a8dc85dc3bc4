#include "trireme/passes/remat.h"

#include <string_view>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/ops/collective/message.h"
#include "trireme/passes/saved_values.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// Copies forward nodes to where gradients need them.
class Recompute {
 public:
  Recompute(Graph& graph, const std::vector<bool>& forgotten)
      : graph_(graph), forgotten_(forgotten), again_(graph.values.size(), kNone), uses_(graph) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    old_ = &nodes;
    for (const Node& node : nodes) {
      Node placed = node;
      if (is_gradient(node.phase))
        for (ValueId& id : placed.inputs) id = needed(id);
      fresh_.push_back(std::move(placed));
    }
    graph_.nodes = std::move(fresh_);
  }

 private:
  // The value to read in place of `id` in the gradient phases.
  ValueId needed(ValueId id) {
    if (id == kNone || index(id) >= forgotten_.size() || !forgotten_[index(id)]) return id;
    if (again_[index(id)] == kNone) compute(index(uses_.producer[index(id)]));
    return again_[index(id)];
  }

  void compute(std::size_t producer) {
    Node copy = (*old_)[producer];
    for (ValueId& id : copy.inputs) id = needed(id);
    copy.phase = ir::Phase::input_gradient;
    copy.barrier = true;
    for (ValueId& id : copy.outputs) {
      const ir::ValueInfo original = graph_.value(id);
      const ValueId fresh = graph_.new_value(original.name + "/again", original.type);
      graph_.value(fresh).sharding = original.sharding;
      again_[index(id)] = fresh;
      id = fresh;
    }
    fresh_.push_back(std::move(copy));
  }

  Graph& graph_;
  const std::vector<bool>& forgotten_;
  std::vector<ValueId> again_;  // by value of the old graph
  ir::Uses uses_;
  const std::vector<Node>* old_ = nullptr;
  std::vector<Node> fresh_;
};

// By name: what the forward phase makes.
std::unordered_map<std::string_view, ValueId> made_forward(const Graph& graph) {
  std::unordered_map<std::string_view, ValueId> made;
  for (const Node& node : graph.nodes)
    if (node.phase == ir::Phase::forward && !ops::is_between_stages(*node.op))
      for (const ValueId id : node.outputs) made.emplace(graph.value(id).name, id);
  return made;
}

}  // namespace

void check_recomputed(const Graph& graph, const std::vector<std::string>& names) {
  const auto made = made_forward(graph);
  for (const std::string& name : names)
    if (!made.contains(name)) refuse("'{}' is to be recomputed, and the forward phase makes no such value", name);
}

void Remat::run(ir::Module& module) const {
  Graph& graph = module.graph(options_.graph);
  if (!options_.partial) check_recomputed(graph, options_.recompute);
  const auto made = made_forward(graph);
  std::vector<bool> forgotten(graph.values.size(), false);
  for (const std::string& name : options_.recompute)
    if (const auto found = made.find(name); found != made.end()) forgotten[index(found->second)] = true;
  Recompute(graph, forgotten).run();
}

}  // namespace trireme::passes
