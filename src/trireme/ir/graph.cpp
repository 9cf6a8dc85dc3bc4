#include "trireme/ir/graph.h"

#include <algorithm>
#include <array>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

void check_operands(const OpDef& op, std::size_t given) {
  std::size_t required = 0;
  bool variadic = false;
  for (const OperandSpec& operand : op.operands) {
    variadic = variadic || operand.variadic;
    if (!operand.optional && !operand.variadic) ++required;
  }
  if (given < required || (!variadic && given > op.operands.size()))
    fail("{} takes {}{} operands, got {}", op.name, required == op.operands.size() ? "" : "at least ", required, given);
}

void check_attributes(const OpDef& op, Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    const auto spec = std::find_if(op.attributes.begin(), op.attributes.end(), [&](const AttributeSpec& s) { return s.name == name; });
    if (spec == op.attributes.end()) fail("{} has no attribute '{}'", op.name, name);
    if (type_of(value) != type_of(spec->fallback))
      fail("attribute '{}' of {} must be {}, got {}", name, op.name, name_of(type_of(spec->fallback)), to_text(value));
  }
  for (const AttributeSpec& spec : op.attributes)
    if (attributes.find(spec.name) == nullptr) attributes.set(spec.name, spec.fallback);
}

}  // namespace

const char* name_of(Phase phase) {
  constexpr std::array<const char*, 4> names = {"forward", "input_gradient", "weight_gradient", "update"};
  return names[static_cast<std::size_t>(phase)];
}

const char* name_of(Category category) {
  constexpr std::array<const char*, 5> names = {"weights", "gradients", "optimizer", "statistics", "scalars"};
  return names[static_cast<std::size_t>(category)];
}

const TensorType& Graph::type(ValueId id) const {
  static const TensorType absent = TensorType::none();
  return id == kNone ? absent : value(id).type;
}

std::string Graph::unique_name(const std::string& base) {
  if (names_.size() < values.size())
    for (const ValueInfo& v : values) names_.insert(v.name);
  std::string unique = base;
  for (int suffix = 1; !names_.insert(unique).second; ++suffix) unique = base + "#" + std::to_string(suffix);
  return unique;
}

ValueId Graph::new_value(const std::string& label, TensorType type) {
  std::string unique = unique_name(label);
  values.push_back({std::move(unique), std::move(type), ValueInfo::Kind::node, kNone, {}});
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add_input(std::string label, TensorType type) {
  const ValueId id = new_value(label, std::move(type));
  if (value(id).name != label) fail("graph '{}' already has a value named '{}'", name, label);
  value(id).kind = ValueInfo::Kind::input;
  inputs.push_back(id);
  return id;
}

ValueId Graph::read(const Module& module, StateId state) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].kind == ValueInfo::Kind::state && values[i].state == state) return static_cast<ValueId>(i);
  const State& s = module.state(state);
  const ValueId id = new_value("@" + s.name, s.type);
  value(id).kind = ValueInfo::Kind::state;
  value(id).state = state;
  return id;
}

Node Graph::make_node(const OpDef& op, std::vector<ValueId> operands, Attributes attributes, const std::string& label, Phase phase,
                      std::int32_t stage) {
  try {
    check_operands(op, operands.size());
    check_attributes(op, attributes);
    const bool variadic = !op.operands.empty() && op.operands.back().variadic;
    if (!variadic) operands.resize(op.operands.size(), kNone);
    for (std::size_t i = 0; i < operands.size() && i < op.operands.size(); ++i)
      if (operands[i] == kNone && !op.operands[i].optional) fail("{} needs its operand '{}'", op.name, op.operands[i].name);
    Node node{&op, std::move(operands), {}, std::move(attributes), phase, stage, false};
    const Types outputs_types = op.infer(input_types(node), node.attributes);
    for (std::size_t i = 0; i < outputs_types.size(); ++i)
      node.outputs.push_back(new_value(i == 0 ? label : label + ":" + std::to_string(i), outputs_types[i]));
    return node;
  } catch (Error& e) {
    throw e.within(label);
  }
}

std::vector<ValueId> Graph::add(const OpDef& op, std::vector<ValueId> operands, Attributes attributes, const std::string& label,
                                Phase phase, std::int32_t stage) {
  nodes.push_back(make_node(op, std::move(operands), std::move(attributes), label, phase, stage));
  return nodes.back().outputs;
}

void Graph::extend(Node& node, const Attributes& changed) {
  for (const auto& [key, attribute] : changed) node.attributes.set(key, attribute);
  const Types types = node.op->infer(input_types(node), node.attributes);
  TRI_CHECK(types.size() >= node.outputs.size(), "{} lost outputs", node.op->name);
  const std::string label = value(node.outputs.front()).name;
  for (std::size_t i = node.outputs.size(); i < types.size(); ++i)
    node.outputs.push_back(new_value(label + ":" + std::to_string(i), types[i]));
}

Types Graph::input_types(const Node& node) const {
  Types types;
  for (const ValueId id : node.inputs) types.push_back(type(id));
  return types;
}

Types Graph::output_types(const Node& node) const {
  Types types;
  for (const ValueId id : node.outputs) types.push_back(type(id));
  return types;
}

std::optional<ValueId> Graph::find_input(std::string_view wanted) const {
  for (const ValueId id : inputs)
    if (value(id).name == wanted) return id;
  return std::nullopt;
}

std::optional<ValueId> Graph::find_output(std::string_view wanted) const {
  for (const Output& output : outputs)
    if (output.name == wanted) return output.value;
  return std::nullopt;
}

void Graph::compact() {
  std::vector<ValueId> renamed(values.size(), kNone);
  std::vector<ValueInfo> kept;
  const auto keep = [&](ValueId& id) {
    if (id == kNone) return;
    ValueId& target = renamed[static_cast<std::size_t>(id)];
    if (target == kNone) {
      target = static_cast<ValueId>(kept.size());
      kept.push_back(std::move(value(id)));
    }
    id = target;
  };
  for (ValueId& id : inputs) keep(id);
  for (Node& node : nodes) {
    for (ValueId& id : node.inputs) keep(id);
    for (ValueId& id : node.outputs) keep(id);
  }
  for (Write& write : writes) keep(write.value);
  for (Output& output : outputs) keep(output.value);
  values = std::move(kept);
  names_.clear();
}

bool operator==(const Graph& a, const Graph& b) {
  return a.name == b.name && a.nodes == b.nodes && a.values == b.values && a.inputs == b.inputs && a.writes == b.writes &&
         a.outputs == b.outputs;
}

Uses::Uses(const Graph& graph) : producer(graph.values.size(), kNone), consumers(graph.values.size()), escapes(graph.values.size()) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId id : graph.nodes[n].outputs) producer[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(n);
    for (const ValueId id : graph.nodes[n].inputs)
      if (id != kNone) consumers[static_cast<std::size_t>(id)].push_back(static_cast<std::int32_t>(n));
  }
  for (const Write& write : graph.writes) escapes[static_cast<std::size_t>(write.value)] = true;
  for (const Output& output : graph.outputs) escapes[static_cast<std::size_t>(output.value)] = true;
}

StateId Module::add_state(State state) {
  if (find_state(state.name) != kNone) fail("state variable '{}' exists already", state.name);
  states.push_back(std::move(state));
  return static_cast<StateId>(states.size()) - 1;
}

StateId Module::find_state(std::string_view name) const {
  for (std::size_t i = 0; i < states.size(); ++i)
    if (states[i].name == name) return static_cast<StateId>(i);
  return kNone;
}

const Graph& Module::graph(std::string_view name) const {
  for (const Graph& g : graphs)
    if (g.name == name) return g;
  fail("the module has no graph '{}'", name);
}

Graph& Module::graph(std::string_view name) { return const_cast<Graph&>(std::as_const(*this).graph(name)); }

bool Module::has_graph(std::string_view name) const {
  return std::any_of(graphs.begin(), graphs.end(), [&](const Graph& g) { return g.name == name; });
}

Graph& Module::add_graph(std::string name) {
  if (has_graph(name)) fail("the module has a graph '{}' already", name);
  graphs.emplace_back().name = std::move(name);
  return graphs.back();
}

bool equal(const Module& a, const Module& b) { return a.mesh == b.mesh && a.states == b.states && a.graphs == b.graphs; }

}  // namespace trireme::ir
