#include "trireme/ir/graph.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

// Far beyond any memory, and few enough that no sum over the buffers of a program overflows.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

}  // namespace

void check_extents(const TensorType& type) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : type.shape)
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) || elements > kMaxElements)
      refuse("extents {} are out of range", type.shape.str());
}

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '#' || c == '-';
}

void check_name(std::string_view name, const char* what) {
  if (name.empty()) fail("a {} has an empty name", what);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool joins = name[i] == ':' && i > 0 && i + 1 < name.size() && name[i - 1] != ':';
    if (!joins && !name_character(name[i]))
      fail("{} name '{}' has the character '{}'; letters, digits and _ . / # - are allowed, and ':' between them", what,
           name, name[i]);
  }
}

void check_operands(const OpDef& op, std::span<const ValueId> operands) {
  std::size_t required = 0;
  for (const OperandSpec& operand : op.operands) required += operand.optional || operand.variadic ? 0 : 1;
  const bool variadic = !op.operands.empty() && op.operands.back().variadic;
  const std::size_t most = op.operands.size();
  if (operands.size() < required || (!variadic && operands.size() > most)) {
    const std::string expected = variadic           ? fmt::format("at least {}", required)
                                 : required == most ? fmt::format("{}", most)
                                                    : fmt::format("{} to {}", required, most);
    fail("{} takes {} operands, got {}", op.name, expected, operands.size());
  }
  for (std::size_t i = 0; i < std::max(most, operands.size()); ++i) {
    const OperandSpec& operand = op.operands[std::min(i, most - 1)];
    const bool absent = i < operands.size() ? operands[i] == kNone : !operand.variadic;
    if (absent && !operand.optional) fail("{} needs its operand '{}'", op.name, operand.name);
  }
}

void complete_attributes(const OpDef& op, Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    const auto spec = std::find_if(op.attributes.begin(), op.attributes.end(),
                                   [&name = name](const AttributeSpec& s) { return s.name == name; });
    if (spec == op.attributes.end()) fail("{} has no attribute '{}'", op.name, name);
    if (type_of(value) != type_of(spec->fallback))
      fail("attribute '{}' of {} must be {}, got {}", name, op.name, name_of(type_of(spec->fallback)), to_text(value));
    if (const double* real = std::get_if<double>(&value); real != nullptr && std::isnan(*real))
      fail("attribute '{}' of {} is not a number", name, op.name);
  }
  for (const AttributeSpec& spec : op.attributes)
    if (attributes.find(spec.name) == nullptr) attributes.set(spec.name, spec.fallback);
}

const char* name_of(Phase phase) {
  constexpr std::array<const char*, 4> names = {"forward", "input_gradient", "weight_gradient", "update"};
  return names[static_cast<std::size_t>(phase)];
}

std::size_t State::storage_bytes() const {
  return room == 0 ? type.bytes() : static_cast<std::size_t>(room) * size_of(type.dtype);
}

const char* name_of(Category category) {
  constexpr std::array<const char*, 6> names = {"weights", "gradients", "optimizer", "statistics", "scalars", "cache"};
  return names[static_cast<std::size_t>(category)];
}

const TensorType& Graph::type(ValueId id) const {
  static const TensorType absent = TensorType::none();
  return id == kNone ? absent : value(id).type;
}

void Graph::learn_names() {
  if (names_.size() == values.size()) return;
  names_.clear();
  for (const ValueInfo& v : values) names_.insert(v.name);
}

ValueId Graph::append(const std::string& label, TensorType type) {
  learn_names();
  std::string unique = label;
  for (int suffix = 1; !names_.insert(unique).second; ++suffix) unique = label + "#" + std::to_string(suffix);
  values.push_back({std::move(unique), std::move(type), ValueInfo::Kind::node, kNone, {}});
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::new_value(const std::string& label, TensorType type) {
  check_name(label, "value");
  return append(label, std::move(type));
}

void Graph::rename(std::span<const ValueId> ids, std::span<const std::string> fresh) {
  TRI_CHECK(ids.size() == fresh.size());
  learn_names();
  for (const ValueId id : ids) names_.erase(value(id).name);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!names_.insert(fresh[i]).second) fail("graph '{}' already has a value named '{}'", name, fresh[i]);
    value(ids[i]).name = fresh[i];
  }
}

ValueId Graph::add_input(std::string label, TensorType type) {
  const ValueId id = new_value(label, std::move(type));
  if (value(id).name != label) fail("graph '{}' already has a value named '{}'", name, label);
  value(id).kind = ValueInfo::Kind::input;
  inputs.push_back(id);
  return id;
}

ValueId Graph::read(const Module& module, StateId state) {
  const State& s = module.state(state);
  const std::string label = "@" + s.name;
  learn_names();
  const auto reads = [&](std::size_t i) {
    return i < values.size() && values[i].kind == ValueInfo::Kind::state && values[i].state == state;
  };
  if (names_.contains(label)) {
    if (const auto known = reads_.find(state); known != reads_.end() && reads(static_cast<std::size_t>(known->second)))
      return known->second;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (reads(i)) return reads_[state] = static_cast<ValueId>(i);
  }
  const ValueId id = append(label, s.type);
  value(id).sharding = s.sharding;
  value(id).kind = ValueInfo::Kind::state;
  value(id).state = state;
  return reads_[state] = id;
}

Node Graph::make_node(const OpDef& op, std::vector<ValueId> operands, Attributes attributes, const std::string& label,
                      Phase phase, std::int32_t stage) {
  try {
    if (op.composite()) fail("{} is given by other ops and cannot be a node itself", op.name);
    check_operands(op, operands);
    complete_attributes(op, attributes);
    if (operands.size() < op.operands.size() && !op.operands.back().variadic)
      operands.resize(op.operands.size(), kNone);
    Node node{&op, std::move(operands), {}, std::move(attributes), phase, stage, false};
    const Types types = op.infer(input_types(node), node.attributes);
    for (std::size_t i = 0; i < types.size(); ++i) {
      check_extents(types[i]);
      node.outputs.push_back(new_value(i == 0 ? label : label + ":" + std::to_string(i), types[i]));
    }
    return node;
  } catch (Error& e) {
    throw e.within(label);
  }
}

std::vector<ValueId> Graph::add(const OpDef& op, std::vector<ValueId> operands, Attributes attributes,
                                const std::string& label, Phase phase, std::int32_t stage) {
  nodes.push_back(make_node(op, std::move(operands), std::move(attributes), label, phase, stage));
  return nodes.back().outputs;
}

void Graph::extend(Node& node, const Attributes& changed) {
  for (const auto& [key, attribute] : changed) node.attributes.set(key, attribute);
  complete_attributes(*node.op, node.attributes);
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

ValueId Graph::find_or_add_input(const std::string& wanted, const TensorType& type) {
  const std::optional<ValueId> known = find_input(wanted);
  return known ? *known : add_input(wanted, type);
}

std::optional<ValueId> Graph::find_output(std::string_view wanted) const {
  for (const Output& output : outputs)
    if (output.name == wanted) return output.value;
  return std::nullopt;
}

void Graph::compact() {
  std::vector<ValueId> renamed(values.size(), kNone);
  std::vector<ValueId> order;
  const auto keep = [&](ValueId& id) {
    if (id == kNone) return;
    ValueId& target = renamed[static_cast<std::size_t>(id)];
    if (target == kNone) {
      target = static_cast<ValueId>(order.size());
      order.push_back(id);
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
  std::vector<ValueInfo> kept;
  kept.reserve(order.size());
  for (const ValueId id : order) kept.push_back(std::move(value(id)));
  values = std::move(kept);
  names_.clear();
}

bool operator==(const Graph& a, const Graph& b) {
  return a.name == b.name && a.nodes == b.nodes && a.values == b.values && a.inputs == b.inputs &&
         a.writes == b.writes && a.outputs == b.outputs;
}

Uses::Uses(const Graph& graph)
    : producer(graph.values.size(), kNone), consumers(graph.values.size()), escapes(graph.values.size()) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId id : graph.nodes[n].outputs)
      producer[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(n);
    for (const ValueId id : graph.nodes[n].inputs)
      if (id != kNone) consumers[static_cast<std::size_t>(id)].push_back(static_cast<std::int32_t>(n));
  }
  for (const Write& write : graph.writes) escapes[static_cast<std::size_t>(write.value)] = true;
  for (const Output& output : graph.outputs) escapes[static_cast<std::size_t>(output.value)] = true;
}

StateId Module::add_state(State state) {
  check_name(state.name, "state");
  if (std::isnan(state.init.a)) fail("state variable '{}' starts with a value that is not a number", state.name);
  if (known_states_ != states.data() || ids_.size() != states.size()) {
    ids_.clear();
    for (std::size_t i = 0; i < states.size(); ++i) ids_.emplace(states[i].name, static_cast<StateId>(i));
  }
  const auto id = static_cast<StateId>(states.size());
  if (!ids_.emplace(state.name, id).second) fail("state variable '{}' exists already", state.name);
  states.push_back(std::move(state));
  known_states_ = states.data();
  return id;
}

StateId Module::find_state(std::string_view name) const {
  // Passes rename and replace states: what is remembered is looked at.
  if (const auto known = ids_.find(name); known != ids_.end())
    if (const auto at = static_cast<std::size_t>(known->second); at < states.size() && states[at].name == name)
      return known->second;
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
  check_name(name, "graph");
  if (has_graph(name)) fail("the module has a graph '{}' already", name);
  graphs.emplace_back().name = std::move(name);
  return graphs.back();
}

bool equal(const Module& a, const Module& b) {
  return a.mesh == b.mesh && a.states == b.states && a.graphs == b.graphs;
}

}  // namespace trireme::ir
