#include "trireme/passes/server.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/passes/server_split.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Module;
using ir::Node;
using ir::Phase;
using ir::StateId;
using ir::ValueId;

class Server {
 public:
  Server(const Module& module, const ServerOptions& options, int place)
      : old_(module), options_(options), place_(place), split_(module), messages_(module, split_, options) {
    next_.registry = module.registry;
    next_.mesh = server_mesh(module.mesh, options.servers);
  }

  Module run() {
    keep_states();
    next_.graphs.push_back(update(old_.graph("update")));
    next_.graphs.push_back(start(old_.graph("init")));
    next_.graphs.push_back(start(old_.graph("refresh")));
    return std::move(next_);
  }

 private:
  const ServerKey* key_of(StateId state) const {
    const StateId parameter = split_.belongs[index(state)];
    for (const ServerKey& key : messages_.keys)
      if (parameter != kNone && key.server == place_ && key.parameter == old_.state(parameter).name) return &key;
    return nullptr;
  }

  void keep_states() {
    for (std::size_t s = 0; s < old_.states.size(); ++s) {
      to_.push_back(kNone);
      const auto id = static_cast<StateId>(s);
      if (!split_.state[s]) continue;
      const ServerKey* key = key_of(id);
      if (key == nullptr && split_.belongs[s] != kNone) continue;
      ir::State state = old_.states[s];
      if (key != nullptr && key->rows > 0) {
        if (state.whole.rank() == 0) state.whole = state.type.shape;
        state.block = state.type.shape;
        state.first_row = key->first * (state.type.shape.as_rows()[0] / state.type.shape[0]);
        state.type = part_type(state.type, key->rows);
      }
      to_.back() = next_.add_state(std::move(state));
    }
    for (const ServerMessage& m : messages_.pushes)
      for (int w = 0; m.server == place_ && w < options_.workers; ++w) {
        ir::State slot;
        slot.name = slot_name(m.of, w);
        slot.type = m.type;
        slot.category = ir::Category::gradients;
        slot.saved = false;
        next_.add_state(std::move(slot));
      }
  }

  ValueId add(Graph& graph, std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes,
              const std::string& label) const {
    return graph
        .add(next_.registry->at(std::string(op)), std::move(inputs), std::move(attributes), label, Phase::update)
        .front();
  }

  // The axes of a sum that are the servers' too: over replicas, what was pushed has taken its place. Gives whether any
  // are left.
  bool keep_axes(ir::Attributes& attributes) const {
    std::vector<std::string> axes = split(attributes.text("axis"), '+');
    std::erase(axes, ir::kDataAxis);
    std::int64_t parts = 1;
    for (const std::string& axis : axes) parts *= next_.mesh.size_of(axis);
    attributes.set("axis", fmt::format("{}", fmt::join(axes, "+")));
    attributes.set("parts", parts);
    return !axes.empty();
  }

  // What an update takes of the pushes of `of`.
  ValueId pushed(Graph& graph, const ServerMessage& m) const {
    if (options_.each) {
      const ValueId one = graph.add_input(m.of, m.type);
      if (options_.workers == 1) return one;
      return add(graph, "scale", {one}, {{"factor", static_cast<double>(options_.workers)}}, m.of + ".own");
    }
    std::vector<ValueId> terms;
    terms.reserve(static_cast<std::size_t>(options_.workers));
    for (int w = 0; w < options_.workers; ++w) terms.push_back(graph.read(next_, next_.find_state(slot_name(m.of, w))));
    return terms.size() == 1 ? terms.front() : add(graph, "add_n", terms, {}, m.of + ".sum");
  }

  Graph update(const Graph& old) {
    Graph graph;
    graph.name = old.name;
    std::map<ValueId, ValueId> known;
    std::set<ValueId> gradients;  // fresh values
    std::map<StateId, ValueId> sums;
    for (const ServerMessage& m : messages_.pushes) {
      if (m.server != place_) continue;
      const ValueId sum = sums[old_.find_state(m.of)] = pushed(graph, m);
      if (m.about != kNone) gradients.insert(sum);
    }
    const auto resolved = [&](ValueId id) -> ValueId {
      if (id == kNone) return kNone;
      if (const auto found = known.find(id); found != known.end()) return found->second;
      const ir::ValueInfo& value = old.value(id);
      if (value.kind == ir::ValueInfo::Kind::input) return known[id] = graph.add_input(value.name, value.type);
      if (value.kind != ir::ValueInfo::Kind::state) return kNone;
      if (const auto sum = sums.find(value.state); sum != sums.end()) return sum->second;
      return to_[index(value.state)] == kNone ? kNone : graph.read(next_, to_[index(value.state)]);
    };
    std::set<ValueId> partial;  // fresh values: squares of what this server keeps, which are summed over all servers
    const auto over_servers = [&](ValueId id, const std::string& label) {
      if (options_.servers == 1 || !partial.contains(id)) return id;
      return add(graph, ops::kAllReduce, {id},
                 {{"axis", std::string(kServerAxis)},
                  {"parts", static_cast<std::int64_t>(options_.servers)},
                  {"reduce", std::string("sum")}},
                 label + "." + kServerAxis);
    };
    for (std::size_t n = 0; n < old.nodes.size(); ++n) {
      const Node& node = old.nodes[n];
      if (!split_.node[n]) continue;
      std::vector<ValueId> inputs;
      bool all_here = true;
      for (const ValueId id : node.inputs) {
        const ValueId fresh = resolved(id);
        if (id != kNone && fresh == kNone)
          all_here = false;
        else
          inputs.push_back(fresh);
      }
      const std::string& label = old.value(node.outputs.front()).name;
      const bool any_partial =
          std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return partial.contains(id); });
      const bool sums_squares = node.op->name == "add_n" && any_partial;
      // A server may keep nothing that counts in the norm, such as a table whose squares another stage sums.
      if (!all_here && inputs.empty() && node.op->name == "add_n" && old.type(node.outputs.front()).shape.rank() == 0) {
        const ValueId nothing =
            add(graph, "fill", {}, {{"value", 0.0}, {"shape", std::vector<std::int64_t>{}}}, label + ".none");
        known[node.outputs.front()] = nothing;
        partial.insert(nothing);
        continue;
      }
      if (!all_here && !sums_squares) continue;  // another server's
      ir::Attributes attributes = node.attributes;
      const bool reduces = node.op->name == ops::kAllReduce;
      if (reduces && !keep_axes(attributes)) {
        for (std::size_t o = 0; o < inputs.size(); ++o) known[node.outputs[o]] = inputs[o];
        continue;
      }
      // Sums of sums over servers may be taken over them at the end, together.
      const bool stays_partial = sums_squares || (reduces && any_partial && inputs.size() == 1);
      if (!stays_partial)
        for (ValueId& id : inputs)
          if (id != kNone) id = over_servers(id, graph.value(id).name);
      const bool of_gradient = node.op->name == "sum_squares" && gradients.contains(inputs.front());
      const auto outputs = graph.add(*node.op, std::move(inputs), attributes, label, node.phase, node.stage);
      for (std::size_t o = 0; o < outputs.size(); ++o) known[node.outputs[o]] = outputs[o];
      if (reduces && gradients.contains(graph.nodes.back().inputs.front())) gradients.insert(outputs.front());
      if (of_gradient || stays_partial) partial.insert(outputs.front());
    }
    const auto made = [&](ValueId id, const std::string& what) {
      const ValueId fresh = resolved(id);
      if (fresh == kNone) fail("server {} cannot make '{}': something of it is kept elsewhere", place_, what);
      return over_servers(fresh, what);
    };
    for (const ir::Write& write : old.writes)
      if (to_[index(write.state)] != kNone)
        graph.writes.push_back({to_[index(write.state)], made(write.value, old_.state(write.state).name), write.mode});
    for (std::size_t r = 0; r < split_.results.size(); ++r)
      graph.outputs.push_back({split_.results[r], made(split_.resulted[r], split_.results[r])});
    return graph;
  }

  // Start values of what is kept here, which may be some rows; or derived copies.
  Graph start(const Graph& old) const {
    Graph graph;
    graph.name = old.name;
    std::map<ValueId, ValueId> known;
    std::map<ValueId, StateId> made_for;
    for (const ir::Write& write : old.writes)
      if (to_[index(write.state)] != kNone) made_for.emplace(write.value, write.state);
    for (const ValueId id : old.inputs) known[id] = graph.add_input(old.value(id).name, old.type(id));
    const auto resolved = [&](ValueId id) {
      if (const auto found = known.find(id); found != known.end()) return found->second;
      const ir::ValueInfo& value = old.value(id);
      const bool here = value.kind == ir::ValueInfo::Kind::state && to_[index(value.state)] != kNone;
      return here ? graph.read(next_, to_[index(value.state)]) : kNone;
    };
    for (const Node& node : old.nodes) {
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs)
        if (id != kNone) inputs.push_back(resolved(id));
      if (std::find(inputs.begin(), inputs.end(), kNone) != inputs.end()) continue;
      ir::Attributes attributes = node.attributes;
      if (node.op->name == "random_init") {
        const auto state = made_for.find(node.outputs.front());
        if (state == made_for.end()) continue;
        if (const ServerKey* key = key_of(state->second); key != nullptr && key->rows > 0) {
          const Shape& part = next_.state(to_[index(state->second)]).type.shape;
          attributes.set("shape", std::vector<std::int64_t>(part.begin(), part.end()));
          attributes.set("first", key->first * (part.elements() / part[0]));
        }
      }
      const auto outputs = graph.add(*node.op, std::move(inputs), attributes, old.value(node.outputs.front()).name,
                                     node.phase, node.stage);
      for (std::size_t o = 0; o < outputs.size(); ++o) known[node.outputs[o]] = outputs[o];
    }
    for (const ir::Write& write : old.writes)
      if (to_[index(write.state)] != kNone)
        graph.writes.push_back({to_[index(write.state)], resolved(write.value), write.mode});
    return graph;
  }

  const Module& old_;
  const ServerOptions& options_;
  int place_;
  ServerSplit split_;
  ServerMessages messages_;
  Module next_;
  std::vector<StateId> to_;  // by old state
};

}  // namespace

void ServerSide::run(Module& module) const { module = Server(module, options_, place_).run(); }

}  // namespace trireme::passes
