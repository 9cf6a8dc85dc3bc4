#pragma once
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// Graphs that some steps run once, around the update: they read states and set others.
inline constexpr const char* kPrune = "prune";        // before it: which elements are kept from now on
inline constexpr const char* kRemember = "remember";  // after it: the weights are kept in mind
inline constexpr const char* kRewind = "rewind";      // after it: they become what they were then

// Whether a graph is one of these.
inline bool is_state_graph(std::string_view name) {
  constexpr std::array<std::string_view, 3> kAll = {kPrune, kRemember, kRewind};
  for (const std::string_view graph : kAll)
    if (graph == name) return true;
  return false;
}

// Whether a graph sets states from states, or from nothing.
inline bool is_start(std::string_view name) { return name == "init" || name == "refresh" || is_state_graph(name); }

// Whether a graph computes the model: of a micro-batch, in training or not.
inline bool reads_batches(std::string_view name) { return name != "update" && !is_start(name); }

// What such a graph adds up (add_n), by node: which of them are whole sums, and not terms of another, and which nodes
// need one.
struct WholeSums {
  std::vector<bool> sum;
  std::vector<bool> behind;

  WholeSums(const ir::Graph& graph, const std::vector<ir::Node>& nodes)
      : sum(nodes.size(), false), behind(nodes.size(), false) {
    const auto any = [](const std::vector<ir::ValueId>& ids, const std::vector<bool>& marks) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](ir::ValueId id) { return id != ir::kNone && marks[ir::index(id)]; });
    };
    std::vector<bool> term(graph.values.size(), false);
    for (std::size_t n = nodes.size(); n-- > 0;) {
      const bool adds = nodes[n].op->name == "add_n";
      const bool is_term = any(nodes[n].outputs, term);
      sum[n] = adds && !is_term;
      for (const ir::ValueId id : nodes[n].inputs)
        if (id != ir::kNone && (adds || is_term)) term[ir::index(id)] = true;
    }
    std::vector<bool> needs(graph.values.size(), false);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      behind[n] = any(nodes[n].inputs, needs);
      for (const ir::ValueId id : nodes[n].outputs) needs[ir::index(id)] = behind[n] || sum[n];
    }
  }
};

}  // namespace trireme::passes
