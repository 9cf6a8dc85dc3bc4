#include "trireme/passes/server.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/passes/server_split.h"
#include "trireme/passes/state_graphs.h"

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
    for (std::size_t u = 0; u < split_.updates.size(); ++u)
      next_.graphs.push_back(update(old_.graph(split_.updates[u].graph), split_.updates[u], messages_.updates[u]));
    for (const Graph& graph : old_.graphs)
      if (graph.name == "init" || graph.name == "refresh" || is_state_graph(graph.name))
        next_.graphs.push_back(start(graph));
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
    for (const ServerMessages::Table& table : messages_.updates)
      for (const ServerMessage& m : table.pushes)
        for (int w = 0; m.server == place_ && w < options_.workers; ++w) keep_slot(m, w);
  }

  // Updates that get the same share it.
  void keep_slot(const ServerMessage& m, int worker) {
    ir::State slot;
    slot.name = slot_name(m.of, worker);
    slot.type = m.type;
    slot.category = ir::Category::gradients;
    slot.saved = false;
    if (const StateId known = next_.find_state(slot.name); known != kNone) {
      TRI_CHECK(next_.state(known).type == slot.type, "'{}' is pushed as {} and as {}", m.of, slot.type.str(),
                next_.state(known).type.str());
      return;
    }
    next_.add_state(std::move(slot));
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

  // What an update takes of the pushes of one value: the sum of the workers' terms, which `decoder` makes of what they
  // sent (null: they sent the terms). `others` are its further operands. Of what every worker has whole, one's.
  ValueId pushed(Graph& graph, const ServerMessage& m, const ServerPush& push, const Node* decoder,
                 const std::vector<ValueId>& others) const {
    const int terms_of = push.term ? options_.workers : 1;
    const auto term = [&](ValueId sent) {
      if (decoder == nullptr) return sent;
      std::vector<ValueId> inputs = {sent};
      inputs.insert(inputs.end(), others.begin(), others.end());
      return add(graph, decoder->op->name, std::move(inputs), decoder->attributes, m.of + ".term");
    };
    if (options_.each) {
      const ValueId one = term(graph.add_input(m.of, m.type));
      if (terms_of == 1) return one;
      return add(graph, "scale", {one}, {{"factor", static_cast<double>(terms_of)}}, m.of + ".own");
    }
    std::vector<ValueId> terms;
    terms.reserve(static_cast<std::size_t>(terms_of));
    for (int w = 0; w < terms_of; ++w) terms.push_back(term(graph.read(next_, next_.find_state(slot_name(m.of, w)))));
    return terms.size() == 1 ? terms.front() : add(graph, "add_n", terms, {}, m.of + ".sum");
  }

  ValueId over_servers(Graph& graph, ValueId id, const std::string& label) const {
    const ValueId sum = add(graph, ops::kAllReduce, {id},
                            {{"axis", std::string(kServerAxis)},
                             {"parts", static_cast<std::int64_t>(options_.servers)},
                             {"reduce", std::string("sum")}},
                            label + "." + kServerAxis);
    // What is the same here, such as two sums to which this server adds nothing, is not the same on others.
    graph.nodes.back().barrier = true;
    return sum;
  }

  ValueId zeros(Graph& graph, const TensorType& type, const std::string& label) const {
    return add(graph, "fill", {},
               {{"value", 0.0},
                {"shape", std::vector<std::int64_t>(type.shape.begin(), type.shape.end())},
                {"dtype", std::string(name_of(type.dtype))}},
               label);
  }

  Graph update(const Graph& old, const ServerUpdate& division, const ServerMessages::Table& messages) const {
    Graph graph;
    graph.name = old.name;
    std::map<ValueId, ValueId> known;
    std::map<StateId, ValueId> sums;
    std::map<std::int32_t, const ServerMessage*> decoded;  // by the node that makes terms of what is pushed
    for (const ServerMessage& m : messages.pushes) {
      if (m.server != place_) continue;
      const ServerPush& push = division.pushes[m.push];
      if (push.decoder != kNone)
        decoded[push.decoder] = &m;
      else if (push.made)
        known[push.value] = pushed(graph, m, push, nullptr, {});
      else
        sums[old_.find_state(m.of)] = pushed(graph, m, push, nullptr, {});
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
    // Fresh values: squares of what this server keeps, which are summed over all servers, by the name that the sum has
    // on each of them.
    std::map<ValueId, std::string> partial;
    const auto whole = [&](ValueId id, const std::string& label) {
      return options_.servers == 1 || !partial.contains(id) ? id : over_servers(graph, id, label);
    };
    for (std::size_t n = 0; n < old.nodes.size(); ++n) {
      const Node& node = old.nodes[n];
      if (!division.server[n]) continue;
      std::vector<ValueId> inputs;
      bool all_here = true;
      const bool decodes = decoded.contains(static_cast<std::int32_t>(n));
      for (std::size_t i = decodes ? 1 : 0; i < node.inputs.size(); ++i) {
        const ValueId fresh = resolved(node.inputs[i]);
        if (node.inputs[i] != kNone && fresh == kNone)
          all_here = false;
        else
          inputs.push_back(fresh);
      }
      if (decodes) {
        const ServerMessage& m = *decoded.at(static_cast<std::int32_t>(n));
        known[node.outputs.front()] = pushed(graph, m, division.pushes[m.push], &node, inputs);
        continue;
      }
      const std::string& label = old.value(node.outputs.front()).name;
      const bool any_partial =
          std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return partial.contains(id); });
      const bool sums_squares = node.op->name == "add_n" && any_partial;
      // A server may keep nothing that counts in the norm, such as a table whose squares another stage sums.
      if (!all_here && inputs.empty() && node.op->name == "add_n" && old.type(node.outputs.front()).shape.rank() == 0) {
        partial[known[node.outputs.front()] = zeros(graph, {DType::f32, {}}, label + ".none")] = label;
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
          if (partial.contains(id)) id = whole(id, partial.at(id));
      const auto outputs = graph.add(*node.op, std::move(inputs), attributes, label, node.phase, node.stage);
      graph.nodes.back().barrier = node.barrier;
      for (std::size_t o = 0; o < outputs.size(); ++o) known[node.outputs[o]] = outputs[o];
      if (node.op->name == "sum_squares" || stays_partial) partial[outputs.front()] = graph.value(outputs.front()).name;
    }
    const auto made = [&](ValueId id, const std::string& what) {
      const ValueId fresh = resolved(id);
      if (fresh == kNone) fail("server {} cannot make '{}': something of it is kept elsewhere", place_, what);
      return whole(fresh, what);
    };
    for (const ir::Write& write : old.writes)
      if (to_[index(write.state)] != kNone)
        graph.writes.push_back({to_[index(write.state)], made(write.value, old_.state(write.state).name), write.mode});
    for (std::size_t r = 0; r < division.results.size(); ++r)
      graph.outputs.push_back({division.results[r], made(division.resulted[r], division.results[r])});
    return graph;
  }

  // Start values of what is kept here, which may be some rows; derived copies; or what sets states from states. There,
  // sums of what several servers have are taken over all of them.
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
    const auto found = [&](const ir::Write& write) {
      const ValueId fresh = resolved(write.value);
      if (fresh == kNone)
        fail("server {} cannot set '{}': something of it is kept elsewhere", place_, old_.state(write.state).name);
      return fresh;
    };
    // Sums over servers in one collective, since on some of them another of the sums may be ready first.
    std::vector<ValueId> sums, own;
    const auto copy = [&](const Node& node, bool sum) {
      std::vector<ValueId> inputs;
      bool all_here = true;
      for (const ValueId id : node.inputs) {
        inputs.push_back(id == kNone ? kNone : resolved(id));
        all_here = all_here && (id == kNone || inputs.back() != kNone);
      }
      if (node.op->name == "add_n" && options_.servers > 1) {
        std::erase(inputs, kNone);
        all_here = !inputs.empty();  // a term of it is enough
      }
      if (sum && options_.servers > 1) {
        const std::string& label = old.value(node.outputs.front()).name;
        sums.push_back(node.outputs.front());
        own.push_back(inputs.empty() ? zeros(graph, old.type(node.outputs.front()), label + ".none")
                                     : add(graph, "add_n", std::move(inputs), {}, label + ".here"));
        return;
      }
      if (!all_here) return;
      ir::Attributes attributes = node.attributes;
      if (node.op->name == "random_init") {
        const auto state = made_for.find(node.outputs.front());
        if (state == made_for.end()) return;
        if (const ServerKey* key = key_of(state->second); key != nullptr && key->rows > 0) {
          const Shape& part = next_.state(to_[index(state->second)]).type.shape;
          attributes.set("shape", std::vector<std::int64_t>(part.begin(), part.end()));
          attributes.set("first", key->first * (part.elements() / part[0]));
        }
      }
      const auto outputs = graph.add(*node.op, std::move(inputs), attributes, old.value(node.outputs.front()).name,
                                     node.phase, node.stage);
      graph.nodes.back().barrier = node.barrier;
      for (std::size_t o = 0; o < outputs.size(); ++o) known[node.outputs[o]] = outputs[o];
    };
    const WholeSums whole(old, old.nodes);
    for (std::size_t n = 0; n < old.nodes.size(); ++n)
      if (!whole.behind[n]) copy(old.nodes[n], whole.sum[n]);
    if (!own.empty()) {
      const auto totals = graph.add(next_.registry->at(ops::kAllReduce), own,
                                    {{"axis", std::string(kServerAxis)},
                                     {"parts", static_cast<std::int64_t>(options_.servers)},
                                     {"reduce", std::string("sum")}},
                                    old.value(sums.front()).name + "." + kServerAxis, Phase::update);
      // Each by its own name: by that the servers know what they have in common.
      std::vector<std::string> names;
      for (const ValueId id : sums) names.push_back(old.value(id).name + "." + kServerAxis);
      graph.rename(totals, names);
      for (std::size_t t = 0; t < sums.size(); ++t) known[sums[t]] = totals[t];
    }
    for (std::size_t n = 0; n < old.nodes.size(); ++n)
      if (whole.behind[n]) copy(old.nodes[n], false);
    for (const ir::Write& write : old.writes)
      if (to_[index(write.state)] != kNone) graph.writes.push_back({to_[index(write.state)], found(write), write.mode});
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
