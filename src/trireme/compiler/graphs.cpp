#include "trireme/compiler/graphs.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/core/rng.h"

namespace trireme::compiler {

std::string prefill_graph(std::int64_t rows) { return rows == 1 ? "decode" : fmt::format("prefill{}", rows); }

namespace {

// A type without its first dimension, which counts the rows of a micro-batch.
std::string type_of_row(const TensorType& type) {
  return TensorType{type.dtype, type.shape.slice(std::min(1, type.shape.rank()), type.shape.rank())}.str();
}

// Attributes that go by the rows are left out: the scale or factor of a loss, which is a mean over them, and shapes, of
// which the type of the result says the rest.
std::string model_attributes(const ir::Node& node, bool loss) {
  std::string text;
  for (const auto& [name, value] : node.attributes)
    if (name != "shape" && !(loss && (name == "scale" || name == "factor")))
      text += fmt::format(" {}={}", name, ir::to_text(value));
  return text;
}

std::string names_of_inputs(const ir::Graph& graph, const ir::Node& node) {
  std::string text;
  for (const ir::ValueId id : node.inputs)
    text += fmt::format(" {}", id == ir::kNone ? std::string("-") : graph.value(id).name);
  return text;
}

enum class Form { without_edges, with_edges };

std::string digest_in(const Graphs& graphs, Form form) {
  std::string text;
  for (const ir::State& state : graphs.module.states) text += fmt::format("{} {}\n", state.name, state.type.str());
  if (graphs.module.has_graph("micro")) {
    const ir::Graph& graph = graphs.module.graph("micro");
    for (const ir::ValueId input : graph.inputs)
      text += fmt::format("{} {}\n", graph.value(input).name, type_of_row(graph.type(input)));
    for (const ir::Node& node : graph.nodes) {
      const ir::ValueInfo& result = graph.value(node.outputs.front());
      text += fmt::format("{} {} {}{}{}\n", node.op->name, result.name, type_of_row(result.type),
                          model_attributes(node, result.type.shape.rank() == 0),
                          form == Form::with_edges ? names_of_inputs(graph, node) : "");
    }
  }
  return fmt::format("{}{:016x}", form == Form::with_edges ? "2-" : "", site_of(text));
}

}  // namespace

std::string digest_of(const Graphs& graphs) { return digest_in(graphs, Form::with_edges); }

bool is_digest_of(std::string_view digest, const Graphs& graphs) {
  return digest == digest_of(graphs) || digest == digest_in(graphs, Form::without_edges);
}

}  // namespace trireme::compiler
