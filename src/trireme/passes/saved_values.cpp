#include "trireme/passes/saved_values.h"

#include <algorithm>

namespace trireme::passes {

using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::ValueId;

std::vector<ValueId> storage_of(const Graph& graph) {
  std::vector<ValueId> storage(graph.values.size());
  for (std::size_t v = 0; v < storage.size(); ++v) storage[v] = static_cast<ValueId>(v);
  for (const Node& node : graph.nodes)
    if (node.op->traits.view)
      storage[static_cast<std::size_t>(node.outputs.front())] = storage[static_cast<std::size_t>(node.inputs.front())];
  return storage;
}

std::vector<SavedValue> saved_values(const Graph& graph) {
  const std::vector<ValueId> storage = storage_of(graph);
  std::vector<SavedValue> by_value(graph.values.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto at = static_cast<std::int32_t>(n);
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      SavedValue& read = by_value[static_cast<std::size_t>(storage[static_cast<std::size_t>(id)])];
      if (!is_gradient(node.phase))
        read.last_forward = at;
      else if (!node.op->traits.view && (read.readers.empty() || read.readers.back() != at))
        read.readers.push_back(at);
    }
    for (const ValueId id : node.outputs) {
      if (storage[static_cast<std::size_t>(id)] != id || node.phase != ir::Phase::forward) continue;
      SavedValue& made = by_value[static_cast<std::size_t>(id)];
      made.value = id;
      made.producer = made.last_forward = at;
    }
  }
  std::vector<SavedValue> saved;
  for (SavedValue& value : by_value)
    if (value.producer != kNone && !value.readers.empty()) saved.push_back(std::move(value));
  std::sort(saved.begin(), saved.end(), [](const SavedValue& a, const SavedValue& b) {
    return std::pair(a.producer, a.value) < std::pair(b.producer, b.value);
  });
  return saved;
}

}  // namespace trireme::passes
