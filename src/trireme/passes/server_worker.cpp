#include <algorithm>
#include <map>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/ops/collective/message.h"
#include "trireme/ops/tier/tier.h"
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

class Worker {
 public:
  Worker(Module& module, const ServerOptions& options)
      : old_(module), first_peer_(options.workers), split_(module), messages_(module, split_, options) {
    next_.registry = module.registry;
    next_.mesh = module.mesh;
  }

  Module run() {
    keep_states();
    for (const Graph& graph : old_.graphs) {
      if (is_state_graph(graph.name)) continue;  // what they set is the servers'
      if (const auto update = update_of(graph))
        next_.graphs.push_back(divided(graph, split_.updates[*update], messages_.updates[*update]));
      else if (graph.name == "refresh")
        next_.graphs.push_back(refresh(graph));
      else
        next_.graphs.push_back(renumbered(graph));
    }
    return std::move(next_);
  }

 private:
  std::optional<std::size_t> update_of(const Graph& graph) const {
    for (std::size_t u = 0; u < split_.updates.size(); ++u)
      if (split_.updates[u].graph == graph.name) return u;
    return std::nullopt;
  }

  // Copies of what servers keep are theirs to save.
  void keep_states() {
    const auto gone = [&](std::size_t s) { return split_.state[s] && !split_.asked[s]; };
    for (std::size_t s = 0; s < old_.states.size(); ++s) {
      to_.push_back(kNone);
      if (gone(s)) continue;
      ir::State state = old_.states[s];
      if (split_.state[s]) state.saved = false;
      if (!state.derived_from.empty() && gone(index(old_.find_state(state.derived_from)))) state.derived_from.clear();
      to_.back() = next_.add_state(std::move(state));
    }
  }

  Graph renumbered(Graph graph) const {
    std::erase_if(graph.writes, [&](const ir::Write& write) { return to_[index(write.state)] == kNone; });
    for (ir::Write& write : graph.writes) write.state = to_[index(write.state)];
    graph.compact();
    for (ir::ValueInfo& value : graph.values)
      if (value.kind == ir::ValueInfo::Kind::state) {
        value.state = to_[index(value.state)];
        TRI_CHECK(value.state != kNone, "graph '{}' reads '{}', which only servers keep", graph.name, value.name);
      }
    return graph;
  }

  ValueId add(Graph& graph, std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes,
              const std::string& label, Phase phase) const {
    return graph.add(next_.registry->at(std::string(op)), std::move(inputs), std::move(attributes), label, phase)
        .front();
  }

  // In the group that the replicas and their servers are, servers come after the workers.
  std::int64_t peer(const ServerMessage& m) const { return first_peer_ + m.server; }

  ValueId pull(Graph& graph, const ServerMessage& m, std::vector<ValueId> after, Phase phase) const {
    return add(graph, ops::kPull, std::move(after),
               {{"peer", peer(m)},
                {"key", static_cast<std::int64_t>(m.key)},
                {"of", m.of},
                {"shape", std::vector<std::int64_t>(m.type.shape.begin(), m.type.shape.end())},
                {"dtype", std::string(name_of(m.type.dtype))}},
               m.of + ".pull", phase);
  }

  // Pulls what servers keep, and sets it. `after` says what a message answers. Gives what the states become.
  template <class After>
  std::map<StateId, ValueId> pull_states(Graph& graph, Phase phase, After&& after) const {
    std::map<StateId, ValueId> pulled;
    std::map<StateId, std::vector<std::pair<std::int64_t, ValueId>>> parts;
    for (const ServerMessage& m : messages_.states)
      parts[to_[index(old_.find_state(m.of))]].emplace_back(m.first, pull(graph, m, after(m), phase));
    for (auto& [state, pieces] : parts) {
      std::sort(pieces.begin(), pieces.end());
      std::vector<ValueId> values;
      for (const auto& [first, value] : pieces) values.push_back(value);
      ValueId whole = values.front();
      if (values.size() > 1)
        whole = add(graph, ops::kAssemble, std::move(values), {}, next_.state(state).name + ".whole", phase);
      graph.writes.push_back({state, whole, ir::Write::Mode::set});
      pulled[state] = whole;
    }
    return pulled;
  }

  Graph divided(const Graph& old, const ServerUpdate& update, const ServerMessages::Table& messages) const {
    Graph graph;
    graph.name = old.name;
    std::map<ValueId, ValueId> known;
    copy(old, graph, known, update.before);
    std::map<std::int32_t, ValueId> sent;  // by key
    std::map<int, ValueId> last;           // by server
    for (const ServerMessage& m : messages.pushes) {
      const ServerPush& push = update.pushes[m.push];
      ValueId value = push.made ? known.at(push.value) : graph.read(next_, to_[index(old_.find_state(m.of))]);
      if (m.rows > 0)
        value = add(graph, ops::kRows, {value}, {{"start", m.first}, {"end", m.first + m.rows}}, m.of + ".rows",
                    Phase::update);
      const ValueId pushed =
          add(graph, ops::kPush, {value}, {{"peer", peer(m)}, {"key", static_cast<std::int64_t>(m.key)}, {"of", m.of}},
              m.of + ".push", Phase::update);
      last[m.server] = pushed;
      if (m.about != kNone) sent[m.about] = pushed;
    }
    const auto after = [&](const ServerMessage& m) {
      // A server that keeps nothing is sent nothing, and answers when the others update.
      const auto any = last.find(m.server);
      if (any == last.end()) return std::vector<ValueId>{};
      std::vector<ValueId> these = {any->second};
      if (m.about != kNone && sent.at(m.about) != these.front()) these.push_back(sent.at(m.about));
      return these;
    };
    // What the update reads and other graphs of the servers set, they have set before it.
    const std::map<StateId, ValueId> pulled = pull_states(graph, Phase::update, after);
    for (std::size_t v = 0; v < old.values.size(); ++v) {
      const StateId state = old.values[v].kind == ir::ValueInfo::Kind::state ? old.values[v].state : kNone;
      const bool updated = std::any_of(old.writes.begin(), old.writes.end(),
                                       [&](const ir::Write& write) { return write.state == state; });
      if (state == kNone || updated || to_[index(state)] == kNone) continue;
      if (const auto fresh = pulled.find(to_[index(state)]); fresh != pulled.end())
        known[static_cast<ValueId>(v)] = fresh->second;
    }
    // To servers that keep nothing the loss may be pushed all the same; the results follow from it.
    std::map<int, ValueId> unanswered = last;
    for (const ServerMessage& m : messages_.states) unanswered.erase(m.server);
    for (std::size_t r = 0; r < messages.results.size(); ++r) {
      const ServerMessage& m = messages.results[r];
      std::vector<ValueId> these = after(m);
      for (const auto& [server, pushed] : unanswered)
        if (server != m.server) these.push_back(pushed);
      known[update.resulted[r]] = pull(graph, m, std::move(these), Phase::update);
    }
    copy(old, graph, known, update.behind);
    for (const ir::Write& write : old.writes)
      if (is_own(write))
        graph.writes.push_back({to_[index(write.state)], resolved(old, graph, known, write.value), write.mode});
    for (const ir::Output& output : old.outputs)
      graph.outputs.push_back({output.name, resolved(old, graph, known, output.value)});
    return graph;
  }

  // What no server keeps.
  bool is_own(const ir::Write& write) const {
    return !split_.state[index(write.state)] && !old_.state(write.state).step_local;
  }

  ValueId resolved(const Graph& old, Graph& graph, std::map<ValueId, ValueId>& known, ValueId id) const {
    if (id == kNone) return kNone;
    if (const auto found = known.find(id); found != known.end()) return found->second;
    const ir::ValueInfo& value = old.value(id);
    if (value.kind == ir::ValueInfo::Kind::state && to_[index(value.state)] != kNone)
      return known[id] = graph.read(next_, to_[index(value.state)]);
    if (value.kind == ir::ValueInfo::Kind::input) return known[id] = graph.add_input(value.name, value.type);
    fail("workers need '{}', which servers make and do not send", value.name);
  }

  void copy(const Graph& old, Graph& graph, std::map<ValueId, ValueId>& known, const std::vector<bool>& marks) const {
    for (std::size_t n = 0; n < old.nodes.size(); ++n) {
      const Node& node = old.nodes[n];
      if (!marks[n]) continue;
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(resolved(old, graph, known, id));
      const auto outputs = graph.add(*node.op, std::move(inputs), node.attributes, old.value(node.outputs.front()).name,
                                     node.phase, node.stage);
      graph.nodes.back().barrier = node.barrier;
      for (std::size_t o = 0; o < outputs.size(); ++o) known[node.outputs[o]] = outputs[o];
    }
  }

  // After the state was set from outside, servers send what workers have copies of.
  Graph refresh(const Graph& old) const {
    Graph graph;
    graph.name = old.name;
    pull_states(graph, Phase::forward, [](const ServerMessage&) { return std::vector<ValueId>{}; });
    const ir::Uses uses(old);
    std::vector<bool> marks(old.nodes.size(), false);
    std::vector<ValueId> wanted;
    for (const ir::Write& write : old.writes)
      if (is_own(write)) wanted.push_back(write.value);
    while (!wanted.empty()) {
      const std::int32_t producer = wanted.back() == kNone ? kNone : uses.producer[index(wanted.back())];
      wanted.pop_back();
      if (producer == kNone || marks[index(producer)]) continue;
      marks[index(producer)] = true;
      wanted.insert(wanted.end(), old.nodes[index(producer)].inputs.begin(), old.nodes[index(producer)].inputs.end());
    }
    std::map<ValueId, ValueId> known;
    copy(old, graph, known, marks);
    for (const ir::Write& write : old.writes)
      if (is_own(write))
        graph.writes.push_back({to_[index(write.state)], resolved(old, graph, known, write.value), write.mode});
    return graph;
  }

  const Module& old_;
  std::int64_t first_peer_;
  ServerSplit split_;
  ServerMessages messages_;
  Module next_;
  std::vector<StateId> to_;  // by old state
};

}  // namespace

void WorkerSide::run(Module& module) const { module = Worker(module, options_).run(); }

}  // namespace trireme::passes
