#include "trireme/passes/remat.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
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
    if (node.phase == ir::Phase::forward && !ops::sends_or_receives(*node.op))
      for (const ValueId id : node.outputs) made.emplace(graph.value(id).name, id);
  return made;
}

// Places along h and w have roles of their own, whose gradients need values at other moments: what they exchange they
// would have to exchange again in one order.
bool is_exchanged_in_space(const Node& node) {
  if (!node.op->traits.collective) return false;
  const ir::Attribute* axis = node.attributes.find("axis");
  if (axis == nullptr) return false;
  const std::vector<std::string> axes = split(node.attributes.text("axis"), '+');
  return std::any_of(axes.begin(), axes.end(), [](const std::string& name) { return ir::is_spatial(name); });
}

}  // namespace

std::set<std::string> forward_values(const Graph& graph) {
  std::set<std::string> names;
  for (const auto& [name, id] : made_forward(graph)) names.emplace(name);
  return names;
}

void check_recomputed(const std::set<std::string>& forward, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (!forward.contains(name))
      refuse("'{}' is to be recomputed, and the forward phase makes no such value{}", name,
             nearest_text(name, {forward.begin(), forward.end()}));
}

void Remat::run(ir::Module& module) const {
  Graph& graph = module.graph(options_.graph);
  if (!options_.partial) check_recomputed(forward_values(graph), options_.recompute);
  const auto made = made_forward(graph);
  std::vector<bool> forgotten(graph.values.size(), false);
  for (const std::string& name : options_.recompute)
    if (const auto found = made.find(name); found != made.end()) forgotten[index(found->second)] = true;
  for (const Node& node : graph.nodes)
    if (is_exchanged_in_space(node))
      for (const ValueId id : node.outputs) forgotten[index(id)] = false;
  Recompute(graph, forgotten).run();
}

}  // namespace trireme::passes
