#include "trireme/passes/cleanup.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/message.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::ValueId;

void merge_common(Graph& graph) {
  std::map<std::string, std::size_t> seen;
  std::vector<bool> written(graph.values.size(), false);
  for (const ir::Write& write : graph.writes)
    written[static_cast<std::size_t>(write.value)] = write.mode == ir::Write::Mode::set;
  const auto makes_state = [&](const Node& node) {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return written[static_cast<std::size_t>(id)]; });
  };
  std::vector<ValueId> replaced(graph.values.size());
  for (std::size_t i = 0; i < replaced.size(); ++i) replaced[i] = static_cast<ValueId>(i);
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    for (ValueId& id : node.inputs)
      if (id != kNone) id = replaced[static_cast<std::size_t>(id)];
    if (!node.barrier && !ops::sends_or_receives(*node.op)) {
      std::string key = fmt::format("{}|{}|{}|{}|{}", node.op->name, fmt::join(node.inputs, ","),
                                    static_cast<int>(node.phase), node.stage, node.on_host);
      for (const auto& [name, value] : node.attributes) key += "|" + name + "=" + ir::to_text(value);
      const auto [found, fresh] = seen.emplace(std::move(key), kept.size());
      const bool both_states = !fresh && makes_state(kept[found->second]) && makes_state(node);
      if (!fresh && !both_states && kept[found->second].outputs.size() == node.outputs.size()) {
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
          replaced[static_cast<std::size_t>(node.outputs[o])] = kept[found->second].outputs[o];
        continue;
      }
    }
    kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  for (ir::Write& write : graph.writes) write.value = replaced[static_cast<std::size_t>(write.value)];
  for (ir::Output& output : graph.outputs) output.value = replaced[static_cast<std::size_t>(output.value)];
}

// Stages have graphs of their own: what one of them does not read, others do.
bool joins_stages(const Node& node) {
  return node.attributes.find("axis") != nullptr && node.attributes.text("axis") == ir::kPipelineAxis;
}

}  // namespace

bool remove_unread(Graph& graph) {
  std::vector<bool> wanted(graph.values.size(), false);
  for (const ir::Write& write : graph.writes) wanted[static_cast<std::size_t>(write.value)] = true;
  for (const ir::Output& output : graph.outputs) wanted[static_cast<std::size_t>(output.value)] = true;
  std::vector<Node> kept;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    const bool used = ops::sends_or_receives(*node.op) || joins_stages(node) ||
                      std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId id) { return wanted[static_cast<std::size_t>(id)]; });
    if (!used) continue;
    for (const ValueId id : node.inputs)
      if (id != kNone) wanted[static_cast<std::size_t>(id)] = true;
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  const bool fewer = kept.size() < graph.nodes.size();
  graph.nodes = std::move(kept);
  return fewer;
}

void CleanUp::run(ir::Module& module) const {
  for (Graph& graph : module.graphs) {
    merge_common(graph);
    remove_unread(graph);
    graph.compact();
  }
}

}  // namespace trireme::passes
