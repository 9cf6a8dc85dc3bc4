#include "trireme/passes/server_split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/message.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::StateId;

bool trained_copy(const ir::Module& module, const ir::State& state) {
  const StateId source = state.derived_from.empty() ? kNone : module.find_state(state.derived_from);
  return source != kNone && module.state(source).trained;
}

}  // namespace

std::string slot_name(const std::string& of, int worker) { return fmt::format("{}/from.{}", of, worker); }

ir::Mesh server_mesh(const ir::Mesh& workers, int servers) {
  ir::Mesh mesh = workers;
  const auto replicas = std::find_if(mesh.axes.begin(), mesh.axes.end(),
                                     [](const ir::Mesh::Axis& axis) { return axis.name == ir::kDataAxis; });
  if (replicas == mesh.axes.end())
    mesh.axes.push_back({kServerAxis, servers});
  else
    *replicas = {kServerAxis, servers};
  std::erase_if(mesh.axes, [](const ir::Mesh::Axis& axis) { return axis.name == kServerAxis && axis.size == 1; });
  return mesh;
}

TensorType part_type(TensorType type, std::int64_t rows) {
  if (rows > 0) type.shape[0] = rows;
  return type;
}

std::vector<ServerKey> share_out(const ir::Module& module, const std::vector<bool>& kept_whole, int servers) {
  std::vector<const ir::State*> parameters;
  std::size_t total = 0;
  const auto place = [&](const ir::State* state) { return static_cast<std::size_t>(state - module.states.data()); };
  for (const ir::State& state : module.states)
    if (state.trained) {
      parameters.push_back(&state);
      total += state.type.bytes();
    }
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const ir::State* a, const ir::State* b) { return a->type.bytes() > b->type.bytes(); });
  const std::size_t fair = std::max<std::size_t>(1, (total + index(servers) - 1) / index(servers));
  std::vector<std::size_t> load(index(servers), 0);
  std::vector<ServerKey> keys;
  for (const ir::State* state : parameters) {
    const Shape& shape = state->type.shape;
    // Parts are cut as checkpoints and initial values are: along the first dimension of a matrix.
    const bool may_share = state->whole.rank() == 0 && !kept_whole[place(state)];
    const std::int64_t rows = may_share && (shape.rank() == 1 || shape.rank() == 2) ? shape[0] : 1;
    const auto wanted = static_cast<std::int64_t>((state->type.bytes() + fair - 1) / fair);
    const std::int64_t parts = std::clamp<std::int64_t>(wanted, 1, std::min<std::int64_t>(servers, rows));
    const std::int64_t each = (rows + parts - 1) / parts;
    std::vector<bool> has(index(servers), false);
    for (std::int64_t first = 0; first < rows; first += each) {
      // Two parts of one tensor never lie on one server.
      int least = -1;
      for (int s = 0; s < servers; ++s)
        if (!has[index(s)] && (least < 0 || load[index(s)] < load[index(least)])) least = s;
      has[index(least)] = true;
      const std::int64_t here = std::min(each, rows - first);
      load[index(least)] += state->type.bytes() / static_cast<std::size_t>(rows) * static_cast<std::size_t>(here);
      keys.push_back({state->name, least, first, parts == 1 ? 0 : here});
    }
  }
  return keys;
}

int servers_with_keys(const ir::Module& module, const ServerOptions& options) {
  const ServerSplit split(module);
  for (int servers = options.servers; servers > 0;) {
    const std::vector<ServerKey> keys = share_out(module, split.whole, servers);
    std::vector<bool> has(index(servers), false);
    for (const ServerKey& key : keys) has[index(key.server)] = true;
    if (std::find(has.begin(), has.end(), false) == has.end()) return servers;
    servers = std::min({servers - 1, static_cast<int>(keys.size()), std::max(1, options.proposed)});
  }
  return 0;
}

namespace {

bool is_update(const ir::Graph& graph) { return graph.name == "update" || graph.name == kWarmUpdate; }

bool over_replicas(const ir::Node& node) {
  if (!node.op->traits.collective || ops::is_message(*node.op)) return false;
  const std::vector<std::string> axes = split(node.attributes.text("axis"), '+');
  return std::find(axes.begin(), axes.end(), ir::kDataAxis) != axes.end();
}

bool over_stages_alone(const ir::Node& node) {
  return node.op->traits.collective && !ops::is_message(*node.op) && node.attributes.text("axis") == ir::kPipelineAxis;
}

// Each replica has its own, such as what compression has lost of its gradients.
bool is_own(const ir::State& state) {
  return std::any_of(state.sharding.dims.begin(), state.sharding.dims.end(),
                     [](const auto& axes) { return std::find(axes.begin(), axes.end(), ir::kDataAxis) != axes.end(); });
}

// What makes a term of a sum out of fewer bytes.
bool is_decoder(const ir::Node& node) { return node.op->name == "unpack" || node.op->name == "add_taken"; }

// The sums over replicas of an update, and what is pushed in their place.
class Pushes {
 public:
  Pushes(const ir::Module& module, const ir::Graph& graph) : module_(module), graph_(graph), uses_(graph) {}

  std::vector<ServerPush> run() {
    std::map<std::string, ServerPush> made;  // by parameter
    for (const ir::Node& node : graph_.nodes)
      if (over_replicas(node))
        for (const ir::ValueId id : node.inputs)
          if (const auto push = made_of(id)) made.emplace(push->parameter, *push);
    std::vector<ServerPush> all;
    for (const ir::State& state : module_.states) {
      if (!state.trained) continue;
      if (const auto found = made.find(state.name); found != made.end()) {
        all.push_back(found->second);
        continue;
      }
      const StateId gradient = module_.find_state(gradient_name(state.name));
      if (gradient == kNone) fail("parameter '{}' has no gradient", state.name);
      all.push_back(state_push(gradient, state.name));
    }
    // Of the stages of a pipeline one has it.
    if (const StateId loss = module_.find_state("loss"); loss != kNone) all.push_back(state_push(loss, ""));
    return all;
  }

 private:
  // Of what replicas do not sum, such as a gradient of values that they have all rows of, each has the whole.
  ServerPush state_push(StateId state, std::string parameter) const {
    const ir::ValueId value = value_of(state);
    const bool term = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const ir::Node& node) {
      return over_replicas(node) && std::any_of(node.inputs.begin(), node.inputs.end(),
                                                [&](ir::ValueId id) { return summed_of(id) == value; });
    });
    return {module_.state(state).name, value, kNone, std::move(parameter), false, term};
  }

  // What a value is the sum of over other axes; itself, where it is no sum.
  ir::ValueId summed_of(ir::ValueId id) const {
    for (const ir::Node* node = producer(id); node != nullptr && node->op->name == ops::kAllReduce; node = producer(id))
      id = node->inputs.front();
    return id;
  }

  // The value that reads a state; kNone: the graph has none.
  ir::ValueId value_of(StateId state) const {
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].kind == ir::ValueInfo::Kind::state && graph_.values[v].state == state)
        return static_cast<ir::ValueId>(v);
    return kNone;
  }

  const ir::Node* producer(ir::ValueId id) const {
    const std::int32_t node = uses_.producer[index(id)];
    return node == kNone ? nullptr : &graph_.nodes[index(node)];
  }

  // Nothing for what is a state, or its sum over other axes: then servers get the state.
  std::optional<ServerPush> made_of(ir::ValueId id) const {
    if (producer(summed_of(id)) == nullptr) return std::nullopt;
    // How far replicas clip what they compress of their own is a mean over them, which what they have whole needs.
    if (graph_.type(id).shape.rank() == 0)
      refuse(
          "parallel.server: replicas clip the gradients that they compress themselves, and parallel.sharding leaves "
          "each of them the whole of some gradients, which are clipped by the mean of all; the nearest is "
          "parallel.compress = \"int8\"");
    const std::int32_t made_by = uses_.producer[index(id)];
    const bool decoded = is_decoder(graph_.nodes[index(made_by)]);
    const ir::ValueId pushed = decoded ? graph_.nodes[index(made_by)].inputs.front() : id;
    return ServerPush{graph_.value(pushed).name, pushed, decoded ? made_by : kNone, parameter_of(pushed), true, true};
  }

  // By the gradient that it is made of; scalars, such as how much all gradients are scaled, come of all of them.
  std::string parameter_of(ir::ValueId id) const {
    std::vector<ir::ValueId> open = {id};
    while (!open.empty()) {
      const ir::ValueId at = open.back();
      open.pop_back();
      if (at == kNone || graph_.type(at).shape.rank() == 0) continue;
      const ir::ValueInfo& value = graph_.value(at);
      if (value.kind == ir::ValueInfo::Kind::state)
        for (const ir::State& state : module_.states)
          if (state.trained && module_.state(value.state).name == gradient_name(state.name)) return state.name;
      if (const ir::Node* node = producer(at)) open.insert(open.end(), node->inputs.begin(), node->inputs.end());
    }
    fail("what replicas sum as '{}' is no parameter's gradient", graph_.value(id).name);
  }

  const ir::Module& module_;
  const ir::Graph& graph_;
  ir::Uses uses_;
};

}  // namespace

ServerSplit::ServerSplit(const ir::Module& module)
    : state(module.states.size(), false),
      asked(module.states.size(), false),
      belongs(module.states.size(), kNone),
      whole(module.states.size(), false) {
  find_states(module);
  find_owners(module);
  for (const char* name : {"update", kWarmUpdate})
    if (module.has_graph(name)) updates.push_back(divide(module, module.graph(name)));
  find_asked(module);
  for (const ServerUpdate& update : updates)
    for (const ServerPush& push : update.pushes)
      if (push.made) whole[index(module.find_state(push.parameter))] = true;
}

void ServerSplit::find_states(const ir::Module& module) {
  // What graphs of the servers read is theirs, though nothing sets it, such as scores that were drawn once.
  for (const ir::Graph& graph : module.graphs)
    if (is_state_graph(graph.name))
      for (const ir::ValueInfo& value : graph.values)
        if (value.kind == ir::ValueInfo::Kind::state) state[index(value.state)] = true;
  for (const ir::Graph& graph : module.graphs)
    for (const ir::Write& write : graph.writes) {
      const ir::State& s = module.state(write.state);
      if (s.trained && is_own(s))
        refuse(
            "parallel.server: '{}' is sharded over {}, whose place servers take; the nearest is parallel.server = "
            "\"none\"",
            s.name, ir::kDataAxis);
      if (is_own(s) || s.step_local) continue;
      const bool of_parameters = s.trained || s.category == ir::Category::optimizer ||
                                 s.category == ir::Category::scalars || trained_copy(module, s);
      if (is_state_graph(graph.name) || (is_update(graph) && of_parameters)) state[index(write.state)] = true;
    }
}

// What is written with a parameter, or named after it and as large, belongs to it.
void ServerSplit::find_owners(const ir::Module& module) {
  for (const ir::Graph& graph : module.graphs) {
    if (!is_update(graph)) continue;
    const ir::Uses uses(graph);
    for (const ir::Write& write : graph.writes)
      if (module.state(write.state).trained)
        for (const ir::Write& other : graph.writes)
          if (state[index(other.state)] && uses.producer[index(other.value)] != kNone &&
              uses.producer[index(other.value)] == uses.producer[index(write.value)])
            belongs[index(other.state)] = write.state;
  }
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    if (module.states[s].trained) belongs[s] = static_cast<StateId>(s);
    const std::string& name = module.states[s].name;
    const std::size_t end = name.rfind('/');
    if (!state[s] || belongs[s] != kNone || end == std::string::npos) continue;
    const StateId parameter = module.find_state(name.substr(0, end));
    if (parameter != kNone && module.state(parameter).trained &&
        module.state(parameter).type.shape == module.states[s].type.shape)
      belongs[s] = parameter;
  }
  // What is ranked is ranked as a whole.
  for (const ir::Graph& graph : module.graphs)
    if (graph.name == kPrune)
      for (const ir::Write& write : graph.writes)
        if (const StateId parameter = belongs[index(write.state)]; parameter != kNone) whole[index(parameter)] = true;
}

ServerUpdate ServerSplit::divide(const ir::Module& module, const ir::Graph& graph) const {
  const ir::Uses uses(graph);
  ServerUpdate update{.graph = graph.name,
                      .before = std::vector<bool>(graph.nodes.size(), false),
                      .server = std::vector<bool>(graph.nodes.size(), false),
                      .behind = std::vector<bool>(graph.nodes.size(), false),
                      .pushes = Pushes(module, graph).run(),
                      .results = {},
                      .resulted = {}};
  std::set<ir::ValueId> pushed;
  for (const ServerPush& push : update.pushes)
    if (push.made) pushed.insert(push.value);
  // Marks what `wanted` is made of, and asks for the operands of what it has marked.
  const auto mark = [&](std::vector<ir::ValueId> wanted, std::vector<bool>& marks, const auto& stops) {
    while (!wanted.empty()) {
      const ir::ValueId id = wanted.back();
      wanted.pop_back();
      const std::int32_t producer = id == kNone ? kNone : uses.producer[index(id)];
      if (producer == kNone || marks[index(producer)] || stops(id, producer)) continue;
      marks[index(producer)] = true;
      const std::vector<ir::ValueId>& inputs = graph.nodes[index(producer)].inputs;
      wanted.insert(wanted.end(), inputs.begin(), inputs.end());
    }
  };
  mark({pushed.begin(), pushed.end()}, update.before, [&](ir::ValueId, std::int32_t producer) {
    TRI_CHECK(!over_replicas(graph.nodes[index(producer)]), "what is pushed of graph '{}' needs a sum over replicas",
              graph.name);
    return false;
  });
  std::vector<ir::ValueId> kept, others;
  for (const ir::Write& write : graph.writes) {
    if (module.state(write.state).step_local) continue;
    (state[index(write.state)] ? kept : others).push_back(write.value);
  }
  // What the step gives follows from the gradients of all stages, also where one has none.
  for (const ir::Output& output : graph.outputs) kept.push_back(output.value);
  mark(kept, update.server, [&](ir::ValueId id, std::int32_t) { return pushed.contains(id); });
  // What other stages push may follow from a sum over the stages, to which one that pushes nothing of it adds its term.
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (over_stages_alone(graph.nodes[n]) && !update.server[n])
      mark(graph.nodes[n].outputs, update.before, [](ir::ValueId, std::int32_t) { return false; });
  const auto answer = [&](const std::string& name, ir::ValueId id) {
    update.results.push_back(name);
    update.resulted.push_back(id);
  };
  for (const ir::Output& output : graph.outputs) {
    const std::int32_t producer = uses.producer[index(output.value)];
    const ir::ValueInfo& value = graph.value(output.value);
    const bool summed = value.kind == ir::ValueInfo::Kind::state && module.state(value.state).step_local;
    if (summed || (producer != kNone && update.server[index(producer)])) answer(output.name, output.value);
  }
  mark(others, update.behind, [&](ir::ValueId id, std::int32_t producer) {
    if (update.before[index(producer)]) return true;
    if (!update.server[index(producer)] || graph.nodes[index(producer)].inputs.empty()) return false;
    if (std::find(update.resulted.begin(), update.resulted.end(), id) == update.resulted.end())
      answer(graph.value(id).name, id);
    return true;
  });
  return update;
}

void ServerSplit::find_asked(const ir::Module& module) {
  const auto ask = [&](const ir::Graph& graph, ir::ValueId id) {
    const ir::ValueInfo& value = graph.value(id);
    if (value.kind == ir::ValueInfo::Kind::state && state[index(value.state)]) asked[index(value.state)] = true;
  };
  for (const ServerUpdate& update : updates) {
    const ir::Graph& graph = module.graph(update.graph);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      if (update.before[n] || update.behind[n])
        for (const ir::ValueId id : graph.nodes[n].inputs)
          if (id != kNone) ask(graph, id);
    // A state that the servers keep and the step gives, such as the loss scale.
    for (const ir::Output& output : graph.outputs) ask(graph, output.value);
  }
  for (const ir::Graph& graph : module.graphs) {
    if (is_update(graph) || is_state_graph(graph.name) || graph.name == "init" || graph.name == "refresh") continue;
    const ir::Uses read(graph);
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (!read.consumers[v].empty() || read.escapes[v]) ask(graph, static_cast<ir::ValueId>(v));
  }
}

ServerMessages::ServerMessages(const ir::Module& module, const ServerSplit& split, const ServerOptions& options)
    : keys(share_out(module, split.whole, options.servers)) {
  int next = 0;
  const auto push = [&](const ServerUpdate& update) {
    const ir::Graph& graph = module.graph(update.graph);
    const auto type = [&](const ServerPush& p) {
      return p.made ? graph.type(p.value) : module.state(module.find_state(p.of)).type;
    };
    Table table;
    for (std::size_t k = 0; k < keys.size(); ++k)
      for (std::size_t p = 0; p < update.pushes.size(); ++p)
        if (const ServerPush& own = update.pushes[p]; own.parameter == keys[k].parameter)
          table.pushes.push_back({next++, keys[k].server, own.of, static_cast<std::int32_t>(k),
                                  part_type(type(own), keys[k].rows), keys[k].first, keys[k].rows, p});
    for (std::size_t p = 0; p < update.pushes.size(); ++p)
      for (int s = 0; update.pushes[p].parameter.empty() && s < options.servers; ++s)
        table.pushes.push_back({next++, s, update.pushes[p].of, kNone, type(update.pushes[p]), 0, 0, p});
    return table;
  };
  const auto results = [&](const ServerUpdate& update, Table& table) {
    for (std::size_t r = 0; r < update.results.size(); ++r)
      table.results.push_back(
          {next++, 0, update.results[r], kNone, module.graph(update.graph).type(update.resulted[r]), 0, 0});
  };
  for (const ServerUpdate& update : split.updates) {
    updates.push_back(push(update));
    if (updates.size() == 1) {
      for (std::size_t k = 0; k < keys.size(); ++k)
        for (std::size_t s = 0; s < split.state.size(); ++s)
          if (split.asked[s] && split.belongs[s] == module.find_state(keys[k].parameter))
            states.push_back({next++, keys[k].server, module.states[s].name, static_cast<std::int32_t>(k),
                              part_type(module.states[s].type, keys[k].rows), keys[k].first, keys[k].rows});
      for (std::size_t s = 0; s < split.state.size(); ++s)
        if (split.asked[s] && split.belongs[s] == kNone)
          states.push_back({next++, 0, module.states[s].name, kNone, module.states[s].type, 0, 0});
    }
    results(update, updates.back());
  }
  constexpr int kMaxKeys = 32768;
  if (next > kMaxKeys) fail("{} messages to and from servers are more than there are tags", next);
}

}  // namespace trireme::passes
