#include "trireme/ir/verify.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "trireme/core/error.h"
#include "trireme/ir/slice.h"

namespace trireme::ir {
namespace {

bool backward(Phase phase) { return phase == Phase::input_gradient || phase == Phase::weight_gradient; }

void check_sharding(const Mesh& mesh, const std::string& name, const TensorType& type, const Sharding& sharding) {
  if (sharding.replicated()) return;
  if (sharding.dims.size() != static_cast<std::size_t>(type.shape.rank()))
    fail("'{}' of {} has a sharding for {} dimensions: {}", name, type.str(), sharding.dims.size(), sharding.str());
  std::unordered_set<std::string_view> used;
  const auto use = [&](const std::string& axis) {
    if (std::none_of(mesh.axes.begin(), mesh.axes.end(), [&](const Mesh::Axis& a) { return a.name == axis; }))
      fail("'{}' is cut over axis '{}', which mesh '{}' does not have", name, axis, mesh.str());
    if (!used.insert(axis).second) fail("'{}' uses axis '{}' twice: {}", name, axis, sharding.str());
  };
  for (const auto& axes : sharding.dims)
    for (const std::string& axis : axes) use(axis);
  for (const Sharding::Partial& partial : sharding.partial) use(partial.axis);
}

// A shard has at most the global extent, and all of it where nothing shards the dimension.
void check_block(const State& state, const Shape& block) {
  bool fits = block.rank() == state.whole.rank();
  for (int d = 0; fits && d < block.rank(); ++d) {
    const bool shards = index(d) < state.sharding.dims.size() && !state.sharding.dims[index(d)].empty();
    fits = shards ? block[d] <= state.whole[d] : block[d] == state.whole[d];
  }
  if (!fits) fail("'{}' of {} is stored in shards of {}", state.name, state.whole.str(), block.str());
}

void check_storage(const State& state) {
  const Shape& part = state.type.shape;
  if (state.whole.rank() > 0) {
    check_extents({state.type.dtype, state.whole});
    check_block(state, state.block.rank() > 0 ? state.block : part);
  }
  if (state.block.rank() > 0) {
    const Shape rows = state.block.as_rows();
    const Shape own = part.as_rows();
    bool fits = state.whole.rank() > 0 && own.rank() == rows.rank() && own[0] <= rows[0];
    for (int d = 1; fits && d < own.rank(); ++d) fits = own[d] == rows[d];
    if (!fits) fail("'{}' cannot be stored as {} of the rows of {}", state.name, part.str(), state.block.str());
    if (state.first_row < 0 || state.first_row > rows[0])
      fail("'{}' of {} cannot begin at row {}", state.name, state.block.str(), state.first_row);
  } else if (state.first_row != 0 || !state.row_axes.empty()) {
    fail("'{}' has rows of no block", state.name);
  }
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  if (state.room != 0 && (state.room < part.elements() || state.room > kMax))
    fail("'{}' of {} cannot have room for {} elements", state.name, part.str(), state.room);
}

void check_states(const Module& module) {
  std::unordered_map<std::string_view, const State*> by_name;
  for (const State& state : module.states) {
    check_name(state.name, "state");
    if (!by_name.emplace(state.name, &state).second) fail("two state variables are named '{}'", state.name);
    Sharding all = state.sharding;  // an axis may shard either dimensions or rows
    for (const std::string& axis : state.row_axes) all.partial.push_back({axis, Sharding::Reduce::sum});
    if (all.dims.empty()) all.dims.resize(index(state.global_shape().rank()));
    check_sharding(module.mesh, state.name, {state.type.dtype, state.global_shape()}, all);
    check_storage(state);
  }
  for (const State& state : module.states) {
    if (state.derived_from.empty()) continue;
    const auto source = by_name.find(state.derived_from);
    if (source == by_name.end())
      fail("state '{}' is derived from '{}', which does not exist", state.name, state.derived_from);
    if (!source->second->derived_from.empty())
      fail("state '{}' is derived from '{}', which is derived itself", state.name, state.derived_from);
    if (state.global_shape() != source->second->global_shape())
      fail("state '{}' is derived from '{}', which has another shape", state.name, state.derived_from);
  }
}

class GraphVerifier {
 public:
  GraphVerifier(const Module& module, const Graph& graph)
      : module_(module),
        graph_(graph),
        made_(graph.values.size()),
        backward_(graph.values.size()),
        weight_gradient_(graph.values.size()),
        tier_(graph.values.size(), 0) {
    for (std::size_t i = 0; i < tier_.size(); ++i)
      if (const StateId state = graph.values[i].state; state >= 0 && index(state) < module.states.size())
        tier_[i] = module.state(state).tier;
  }

  void run() {
    check_names();
    for (const ValueId id : graph_.inputs) make(id, ValueInfo::Kind::input, "the input list");
    for (const ValueInfo& value : graph_.values)
      if (value.kind == ValueInfo::Kind::state) check_state_read(value);
    for (const Node& node : graph_.nodes) check_node(node);
    check_writes();
    for (const ValueInfo& value : graph_.values)
      if (value.kind != ValueInfo::Kind::state) check_sharding(module_.mesh, value.name, value.type, value.sharding);
    for (const Output& output : graph_.outputs) check_known(output.value, "output '" + output.name + "'");
  }

 private:
  bool exists(ValueId id) const { return id >= 0 && static_cast<std::size_t>(id) < graph_.values.size(); }

  void check_names() const {
    std::unordered_set<std::string_view> seen;
    for (const ValueInfo& value : graph_.values) {
      const bool reads = value.kind == ValueInfo::Kind::state;
      check_name(reads && value.name.starts_with('@') ? std::string_view(value.name).substr(1) : value.name, "value");
      if (!seen.insert(value.name).second) fail("two values are named '{}'", value.name);
    }
    std::unordered_set<std::string_view> outputs;
    for (const Output& output : graph_.outputs) {
      check_name(output.name, "output");
      if (!outputs.insert(output.name).second) fail("two outputs are named '{}'", output.name);
    }
  }

  void check_state_read(const ValueInfo& value) const {
    if (value.state < 0 || static_cast<std::size_t>(value.state) >= module_.states.size())
      fail("value '{}' reads a state that does not exist", value.name);
    const State& state = module_.state(value.state);
    if (state.type != value.type)
      fail("'{}' reads state '{}' of {} as {}", value.name, state.name, state.type.str(), value.type.str());
    if (value.name != "@" + state.name) fail("the read of state '{}' is named '{}'", state.name, value.name);
    if (value.sharding != state.sharding)
      fail("'{}' is stored as '{}' and read as '{}'", state.name, state.sharding.str(), value.sharding.str());
  }

  void check_known(ValueId id, const std::string& where) const {
    if (!exists(id)) fail("{} names a value that does not exist", where);
    const ValueInfo& value = graph_.value(id);
    if (value.kind != ValueInfo::Kind::state && !made_[static_cast<std::size_t>(id)])
      fail("{} reads '{}' before it is made", where, value.name);
  }

  void make(ValueId id, ValueInfo::Kind kind, const std::string& where) {
    if (!exists(id)) fail("{} makes a value that does not exist", where);
    if (graph_.value(id).kind != kind) fail("{} makes '{}', which is of another kind", where, graph_.value(id).name);
    if (made_[static_cast<std::size_t>(id)]) fail("'{}' is made twice", graph_.value(id).name);
    made_[static_cast<std::size_t>(id)] = true;
  }

  void check_node(const Node& node) {
    if (node.op == nullptr) fail("a node has no op");
    const bool named = !node.outputs.empty() && exists(node.outputs.front());
    const std::string where =
        named ? node.op->name + " '" + graph_.value(node.outputs.front()).name + "'" : node.op->name;
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      check_known(id, where);
      if (!backward(node.phase) && node.phase != Phase::update && backward_[static_cast<std::size_t>(id)])
        fail("{} of the forward phase reads '{}', which is made in the backward phase", where, graph_.value(id).name);
      if (node.phase == Phase::input_gradient && weight_gradient_[static_cast<std::size_t>(id)])
        fail("{} of the input gradients reads '{}', which is made with the weight gradients", where,
             graph_.value(id).name);
    }
    Types expected;
    try {
      check_operands(*node.op, node.inputs);
      Attributes complete = node.attributes;
      complete_attributes(*node.op, complete);
      if (complete != node.attributes) fail("some of its attributes are missing");
      expected = node.op->infer(graph_.input_types(node), node.attributes);
    } catch (Error& e) {
      throw e.within(where);
    }
    if (expected.size() != node.outputs.size())
      fail("{} has {} outputs, its op infers {}", where, node.outputs.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      make(node.outputs[i], ValueInfo::Kind::node, where);
      if (graph_.type(node.outputs[i]) != expected[i])
        fail("output {} of {} is {}, its op infers {}", i, where, graph_.type(node.outputs[i]).str(),
             expected[i].str());
      backward_[static_cast<std::size_t>(node.outputs[i])] = backward(node.phase);
      weight_gradient_[static_cast<std::size_t>(node.outputs[i])] = node.phase == Phase::weight_gradient;
    }
    check_tiers(node, where);
  }

  // The memory tier of what a node makes: its own word for it, or that of what it is a view of.
  int tier_made(const Node& node) const {
    if (node.on_host) return kHostTier;
    if (node.op->traits.view && !node.inputs.empty()) return tier_[index(node.inputs.front())];
    const Attribute* tier = node.attributes.find("tier");
    return tier == nullptr ? 0 : static_cast<int>(node.attributes.integer("tier"));
  }

  void check_tiers(const Node& node, const std::string& where) {
    for (const ValueId id : node.inputs)
      if (node.on_host && id != kNone && tier_[index(id)] != kHostTier)
        fail("{} is done on the host and reads '{}', which is not in the host's memory", where, graph_.value(id).name);
    if (node.on_host && (node.op->traits.view || node.op->traits.collective))
      fail("{} cannot be done on the host", where);
    for (const ValueId id : node.outputs) tier_[index(id)] = tier_made(node);
  }

  static constexpr int kHostTier = 1;  // as State::tier counts

  void check_writes() const {
    std::unordered_set<StateId> set;
    std::unordered_set<StateId> added;
    for (const Write& write : graph_.writes) {
      if (write.state < 0 || static_cast<std::size_t>(write.state) >= module_.states.size())
        fail("a write names a state that does not exist");
      const State& state = module_.state(write.state);
      check_known(write.value, "the write of '" + state.name + "'");
      const TensorType& type = graph_.type(write.value);
      const bool widens = write.mode == Write::Mode::add && state.type.dtype == DType::f32 && is_float(type.dtype) &&
                          state.type.shape == type.shape;
      if (type != state.type && !widens)
        fail("state '{}' is {}, written with {}", state.name, state.type.str(), type.str());
      if (write.mode == Write::Mode::add) {
        added.insert(write.state);
        // Gradients may be summed across two steps, where a batch's backwards are.
        if (!state.step_local && (state.saved || state.category != Category::gradients))
          fail("state '{}' is added to but lives beyond the step", state.name);
      } else if (!set.insert(write.state).second) {
        fail("state '{}' is set twice", state.name);
      }
      if (set.contains(write.state) && added.contains(write.state))
        fail("state '{}' is both set and added to", state.name);
    }
  }

  const Module& module_;
  const Graph& graph_;
  std::vector<bool> made_;
  std::vector<bool> backward_;
  std::vector<bool> weight_gradient_;
  std::vector<int> tier_;
};

}  // namespace

void verify(const Module& module) {
  check_states(module);
  std::unordered_set<std::string_view> names;
  for (const Graph& graph : module.graphs) {
    if (!names.insert(graph.name).second) fail("two graphs are named '{}'", graph.name);
    try {
      GraphVerifier(module, graph).run();
    } catch (Error& e) {
      throw e.within("graph '" + graph.name + "'");
    }
  }
}

}  // namespace trireme::ir
