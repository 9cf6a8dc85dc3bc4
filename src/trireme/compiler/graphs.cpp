#include "trireme/compiler/graphs.h"

#include <fmt/format.h>

#include "trireme/core/rng.h"

namespace trireme::compiler {

std::string prefill_graph(std::int64_t rows) { return rows == 1 ? "decode" : fmt::format("prefill{}", rows); }

std::string digest_of(const Graphs& graphs) {
  std::string text;
  for (const ir::State& state : graphs.module.states) text += fmt::format("{} {}\n", state.name, state.type.str());
  if (graphs.module.has_graph("micro")) {
    const ir::Graph& graph = graphs.module.graph("micro");
    for (const ir::Node& node : graph.nodes)
      text += fmt::format("{} {}\n", node.op->name, graph.value(node.outputs.front()).name);
  }
  return fmt::format("{:016x}", site_of(text));
}

}  // namespace trireme::compiler
