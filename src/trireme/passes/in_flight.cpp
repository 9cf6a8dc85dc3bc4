#include "trireme/passes/in_flight.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/ops/tier/tier.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::Phase;
using ir::StateId;
using ir::ValueId;
using ir::ValueInfo;

constexpr std::string_view kSaved = "flight/";
constexpr std::string_view kVersion = "/version.";

std::string version_name(const std::string& state, int slot) { return fmt::format("{}{}{}", state, kVersion, slot); }

std::set<StateId> written_by(const Graph& graph, ir::Write::Mode mode) {
  std::set<StateId> states;
  for (const ir::Write& write : graph.writes)
    if (write.mode == mode) states.insert(write.state);
  return states;
}

void drop_unread_inputs(Graph& graph) {
  const ir::Uses uses(graph);
  std::erase_if(graph.inputs,
                [&](ValueId id) { return uses.consumers[index(id)].empty() && !uses.escapes[index(id)]; });
}

class InFlightSplitter {
 public:
  InFlightSplitter(ir::Module& module, const InFlight::Options& options)
      : module_(module), options_(options), micro_(module.graph("micro")), uses_(micro_) {
    updated_ = written_by(module.graph("update"), ir::Write::Mode::set);
    for (const ir::Write& write : micro_.writes)
      if (write.mode == ir::Write::Mode::set) set_.insert(write.state);
  }

  void run() {
    forward_ = micro_;
    forward_.name = kForward;
    backward_ = micro_;
    backward_.name = kBackward;
    split_nodes();
    split_writes();
    if (options_.delayed) keep_what_forward_reads();
    drop_unread_inputs(forward_);
    drop_unread_inputs(backward_);
    forward_.compact();
    backward_.compact();
    Graph stash;
    stash.name = kStash;
    for (const auto& [state, version] : versions_)
      stash.writes.push_back({version, copied(stash, stash.read(module_, state)), ir::Write::Mode::set});
    for (Graph* graph : {&forward_, &backward_, &stash}) module_.graphs.push_back(std::move(*graph));
  }

 private:
  bool in_forward(ValueId id) const {
    const std::int32_t producer = uses_.producer[index(id)];
    return producer == kNone || micro_.nodes[index(producer)].phase == Phase::forward;
  }

  void split_nodes() {
    std::erase_if(forward_.nodes, [](const Node& node) { return node.phase != Phase::forward; });
    const std::vector<Node> all = std::move(backward_.nodes);
    backward_.nodes.clear();
    for (const Node& node : all) {
      if (node.phase == Phase::forward) continue;
      Node own = node;
      for (ValueId& id : own.inputs)
        if (id != kNone && in_forward(id)) id = taken_over(id);
      backward_.nodes.push_back(std::move(own));
    }
    // A node of the forward phase cannot read gradients.
    for (const Node& node : forward_.nodes)
      for (const ValueId id : node.inputs)
        if (id != kNone && !in_forward(id))
          fail("'{}' of the forward phase reads the gradient '{}'", micro_.value(node.outputs.front()).name,
               micro_.value(id).name);
  }

  void split_writes() {
    std::erase_if(forward_.writes, [&](const ir::Write& write) { return !in_forward(write.value); });
    for (const ir::Write& write : forward_.writes)
      if (write.mode == ir::Write::Mode::add && options_.ahead > 0)
        fail("state '{}' is summed by the forward phase of a stage that is ahead of its updates",
             module_.state(write.state).name);
    for (const auto& [value, state] : saved_) forward_.writes.push_back({state, value, ir::Write::Mode::set});
    std::erase_if(backward_.writes, [&](const ir::Write& write) { return in_forward(write.value); });
    backward_.outputs.clear();
    // A batch whose backwards begin in one step and end in the next is summed across both.
    if (options_.delayed && options_.ahead > 0)
      for (const ir::Write& write : backward_.writes)
        if (ir::State& state = module_.state(write.state); state.step_local) {
          state.step_local = false;
          state.saved = false;
        }
  }

  // A value of the forward phase, as the backward has it.
  ValueId taken_over(ValueId id) {
    if (const auto known = taken_.find(id); known != taken_.end()) return known->second;
    const ValueInfo& value = micro_.value(id);
    ValueId own = kNone;
    if (value.kind == ValueInfo::Kind::state && !set_.contains(value.state))
      own = backward_.read(module_, updated_.contains(value.state) ? version_of(value.state) : value.state);
    else if (const Node* view = view_to_repeat(id); view != nullptr)
      own = repeated(*view, value);
    else
      own = backward_.read(module_, saved(id));
    return taken_[id] = own;
  }

  // What another tier has comes by the memory that computes: a load has a reader that does, and a store a maker.
  ValueId copied(Graph& graph, ValueId state) const {
    const int tier = module_.state(graph.value(state).state).tier;
    if (tier == 0) return state;
    const std::string name = graph.value(state).name.substr(1);
    const auto add = [&](std::string_view op, ValueId from, ir::Attributes attributes, const char* ending) {
      return graph
          .add(module_.registry->at(std::string(op)), {from}, std::move(attributes), name + ending, Phase::update)
          .front();
    };
    const ValueId own = add("concat", add(ops::kLoad, state, {}, ".load"), {{"dim", std::int64_t{0}}}, ".copy");
    return add(ops::kStore, own, {{"tier", std::int64_t{tier}}}, ".store");
  }

  // Views cost nothing: what is saved is what they are views of, unless that is more. Views of states are never saved,
  // nor is what was loaded of a state of another tier.
  const Node* view_to_repeat(ValueId id) const {
    const std::int32_t producer = uses_.producer[index(id)];
    if (producer == kNone) return nullptr;
    const Node& node = micro_.nodes[index(producer)];
    const bool loads = node.op->name == ops::kLoad;
    if ((!node.op->traits.view && !loads) || node.inputs.size() != 1 || node.outputs.size() != 1) return nullptr;
    const ValueId source = node.inputs.front();
    const bool of_state =
        micro_.value(source).kind == ValueInfo::Kind::state && !set_.contains(micro_.value(source).state);
    return of_state || (!loads && micro_.type(source).bytes() == micro_.type(id).bytes()) ? &node : nullptr;
  }

  ValueId repeated(const Node& view, const ValueInfo& value) {
    Node node = view;
    node.phase = Phase::input_gradient;
    node.inputs.front() = taken_over(view.inputs.front());
    node.outputs.front() = backward_.new_value(value.name, value.type);
    backward_.value(node.outputs.front()).sharding = value.sharding;
    backward_.nodes.push_back(node);
    return node.outputs.front();
  }

  // Where the forward phase leaves a value.
  std::int32_t tier_of(ValueId id) const {
    const std::int32_t producer = uses_.producer[index(id)];
    if (producer == kNone || micro_.nodes[index(producer)].op->name != ops::kStore) return 0;
    return static_cast<std::int32_t>(micro_.nodes[index(producer)].attributes.integer("tier"));
  }

  StateId saved(ValueId id) {
    std::string name = micro_.value(id).name;
    if (name.starts_with('@')) name.erase(0, 1);
    StateId first = kNone;
    for (int slot = 0; slot < options_.slots; ++slot) {
      ir::State state;
      state.name = fmt::format("{}{}.{}", kSaved, name, slot);
      state.type = micro_.type(id);
      state.tier = tier_of(id);
      state.category = ir::Category::cache;
      state.saved = false;
      state.step_local = options_.ahead == 0;  // used up in the program that made it
      const StateId added = module_.add_state(std::move(state));
      if (slot == 0) first = added;
    }
    saved_.emplace_back(id, first);
    return first;
  }

  // The state itself, where a micro-batch's backward comes before the next update.
  StateId version_of(StateId id) {
    if (options_.versions == 0) return id;
    if (const auto known = versions_.find(id); known != versions_.end()) return known->second;
    StateId first = kNone;
    for (int slot = 0; slot < options_.versions; ++slot) {
      ir::State state = module_.state(id);
      state.name = version_name(module_.state(id).name, slot);
      state.init = {};
      state.saved = false;
      state.trained = false;
      state.derived_from.clear();
      const StateId added = module_.add_state(std::move(state));
      if (slot == 0) first = added;
    }
    return versions_[id] = first;
  }

  void keep_what_forward_reads() {
    for (const Node& node : forward_.nodes)
      for (const ValueId id : node.inputs)
        if (id != kNone && forward_.value(id).kind == ValueInfo::Kind::state)
          if (const StateId state = forward_.value(id).state; updated_.contains(state) && !set_.contains(state))
            version_of(state);
  }

  ir::Module& module_;
  const InFlight::Options& options_;
  const Graph micro_;
  ir::Uses uses_;
  std::set<StateId> updated_;  // by the update
  std::set<StateId> set_;      // by the micro-batch itself, such as running statistics
  Graph forward_;
  Graph backward_;
  std::map<ValueId, ValueId> taken_;  // of micro_ → of backward_
  std::vector<std::pair<ValueId, StateId>> saved_;
  std::map<StateId, StateId> versions_;  // the first of each
};

// Of every state whose name ends in ".0" after `mark`: the one that ends in the slot's number.
SlotStates in_slot(const ir::Module& module, int slot, const auto& belongs) {
  SlotStates all;
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    const std::string& name = module.states[s].name;
    if (!name.ends_with(".0") || !belongs(name)) continue;
    const StateId other = module.find_state(fmt::format("{}.{}", name.substr(0, name.size() - 2), slot));
    if (other == kNone) fail("state '{}' has no slot {}", name, slot);
    if (slot != 0) all.emplace_back(static_cast<StateId>(s), other);
  }
  return all;
}

bool is_first_version(const std::string& name) { return name.ends_with(version_name("", 0)); }

}  // namespace

void InFlight::run(ir::Module& module) const { InFlightSplitter(module, options_).run(); }

SlotStates in_flight_slot(const ir::Module& module, int slot) {
  return in_slot(module, slot, [](const std::string& name) { return name.starts_with(kSaved); });
}

SlotStates in_version_slot(const ir::Module& module, int slot) { return in_slot(module, slot, is_first_version); }

SlotStates versions_for_weights(const ir::Module& module) {
  SlotStates all;
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    const std::string& name = module.states[s].name;
    if (is_first_version(name))
      all.emplace_back(module.find_state(name.substr(0, name.size() - version_name("", 0).size())),
                       static_cast<StateId>(s));
  }
  return all;
}

}  // namespace trireme::passes
