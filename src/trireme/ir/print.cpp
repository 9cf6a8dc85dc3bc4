#include "trireme/ir/print.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

std::string init_text(const Init& init) {
  switch (init.kind) {
    case Init::Kind::zeros: return "zeros";
    case Init::Kind::constant: return "constant(" + to_text(init.a) + ")";
    case Init::Kind::normal: return "normal(" + to_text(init.a) + ")";
    case Init::Kind::uniform: return "uniform(" + to_text(init.a) + ")";
    case Init::Kind::derived: break;
  }
  return "derived";
}

std::string state_text(const State& s) {
  std::string line =
      fmt::format("  state @{} : {} category={} init={}", s.name, s.type.str(), name_of(s.category), init_text(s.init));
  if (s.trained) line += " trained";
  if (s.decayed) line += " decayed";
  if (!s.saved) line += " unsaved";
  if (s.sparse) line += " sparse";
  if (s.step_local) line += " step_local";
  if (!s.derived_from.empty()) line += " derived_from=@" + s.derived_from;
  if (s.tier != 0) line += fmt::format(" tier={}", s.tier);
  if (s.whole.rank() > 0) line += fmt::format(" whole={}", s.whole.str());
  if (s.block.rank() > 0) line += fmt::format(" block={}", s.block.str());
  if (!s.row_axes.empty()) line += fmt::format(" rows=\"{}\"", fmt::join(s.row_axes, "+"));
  if (s.first_row != 0) line += fmt::format(" first_row={}", s.first_row);
  if (s.room != 0) line += fmt::format(" room={}", s.room);
  if (!s.sharding.replicated()) line += fmt::format(" sharding=\"{}\"", s.sharding.str());
  return line + "\n";
}

std::string value_text(const Graph& graph, ValueId id) {
  if (id == kNone) return "_";
  const ValueInfo& value = graph.value(id);
  return value.kind == ValueInfo::Kind::state ? value.name : "%" + value.name;
}

std::string value_list(const Graph& graph, const std::vector<ValueId>& ids) {
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i) out += (i > 0 ? ", " : "") + value_text(graph, ids[i]);
  return out;
}

std::string sharding_text(const Graph& graph, const std::vector<ValueId>& ids) {
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const Sharding& s = graph.value(ids[i]).sharding; !s.replicated())
      out += fmt::format(" sharding:{}=\"{}\"", i, s.str());
  return out;
}

// An attribute that has its default is left out: the op's definition restores it.
bool is_default(const OpDef& op, const std::string& name, const Attribute& value) {
  return std::any_of(op.attributes.begin(), op.attributes.end(), [&](const AttributeSpec& spec) {
    return spec.name == name && to_text(spec.fallback) == to_text(value);
  });
}

std::string node_text(const Graph& graph, const Node& node) {
  // Trailing absent operands are left out: the op's definition restores them.
  std::vector<ValueId> inputs = node.inputs;
  while (!inputs.empty() && inputs.back() == kNone) inputs.pop_back();
  std::string line =
      fmt::format("    {} = {}({})", value_list(graph, node.outputs), node.op->name, value_list(graph, inputs));
  std::string attributes;
  for (const auto& [name, value] : node.attributes)
    if (!is_default(*node.op, name, value))
      attributes += fmt::format("{}{}={}", attributes.empty() ? "" : ", ", name, to_text(value));
  if (!attributes.empty()) line += " {" + attributes + "}";
  std::string types;
  for (const ValueId id : node.outputs) types += (types.empty() ? "" : ", ") + graph.type(id).str();
  line += " : " + types;
  if (node.phase != Phase::forward) line += fmt::format(" phase={}", name_of(node.phase));
  if (node.stage != 0) line += fmt::format(" stage={}", node.stage);
  if (node.barrier) line += " barrier";
  if (node.on_host) line += " on_host";
  return line + sharding_text(graph, node.outputs) + "\n";
}

std::string dot_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string to_text(const Module& module, const Graph& graph) {
  std::string out = fmt::format("  graph {} {{\n", graph.name);
  for (const ValueId id : graph.inputs)
    out +=
        fmt::format("    input %{} : {}{}\n", graph.value(id).name, graph.type(id).str(), sharding_text(graph, {id}));
  for (const Node& node : graph.nodes) out += node_text(graph, node);
  for (const Write& write : graph.writes)
    out += fmt::format("    write {} @{} = {}\n", write.mode == Write::Mode::add ? "add" : "set",
                       module.state(write.state).name, value_text(graph, write.value));
  for (const Output& output : graph.outputs)
    out += fmt::format("    output {} = {}\n", output.name, value_text(graph, output.value));
  return out + "  }\n";
}

std::string to_text(const Module& module) {
  std::string out = "module {\n";
  if (!module.mesh.axes.empty()) out += fmt::format("  mesh \"{}\"\n", module.mesh.str());
  for (const State& state : module.states) out += state_text(state);
  for (const Graph& graph : module.graphs) out += to_text(module, graph);
  return out + "}\n";
}

std::string to_dot(const Module& module, const Graph& graph) {
  std::string out =
      fmt::format("digraph {} {{\n  rankdir=TB; node [fontname=\"Helvetica\", fontsize=10, style=filled];\n",
                  dot_quoted(graph.name));
  const auto colour = [](Phase phase) {
    switch (phase) {
      case Phase::forward: return "#cfe8cf";
      case Phase::input_gradient: return "#f6d5c3";
      case Phase::weight_gradient: return "#f3e2a9";
      case Phase::update: break;
    }
    return "#d7d3ee";
  };
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const ValueInfo& value = graph.values[i];
    if (value.kind == ValueInfo::Kind::node) continue;
    out += fmt::format("  v{} [label={}, shape={}, fillcolor=\"#ffffff\"];\n", i,
                       dot_quoted(value.name + "\\n" + value.type.str()),
                       value.kind == ValueInfo::Kind::state ? "box" : "ellipse");
  }
  const Uses uses(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    out += fmt::format("  n{} [label={}, shape=box, fillcolor=\"{}\"];\n", n,
                       dot_quoted(node.op->name + "\\n" + graph.value(node.outputs.front()).name + "\\n" +
                                  graph.type(node.outputs.front()).str()),
                       colour(node.phase));
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      const std::int32_t producer = uses.producer[static_cast<std::size_t>(id)];
      out += producer == kNone ? fmt::format("  v{} -> n{};\n", id, n) : fmt::format("  n{} -> n{};\n", producer, n);
    }
  }
  for (const Write& write : graph.writes) {
    const std::int32_t producer = uses.producer[static_cast<std::size_t>(write.value)];
    out += fmt::format("  w{} [label={}, shape=box, fillcolor=\"#ffffff\"];\n", write.state,
                       dot_quoted(module.state(write.state).name));
    const std::string source = producer != kNone ? fmt::format("n{}", producer) : fmt::format("v{}", write.value);
    out += fmt::format("  {} -> w{} [style=dashed];\n", source, write.state);
  }
  return out + "}\n";
}

}  // namespace trireme::ir
