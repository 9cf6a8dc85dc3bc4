#include "trireme/passes/server_split.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/autodiff.h"

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

std::vector<ServerKey> share_out(const ir::Module& module, int servers) {
  std::vector<const ir::State*> parameters;
  std::size_t total = 0;
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
    const bool whole = state->whole.rank() == 0;
    const std::int64_t rows = whole && (shape.rank() == 1 || shape.rank() == 2) ? shape[0] : 1;
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
  if (const auto idle = std::find(load.begin(), load.end(), 0); idle != load.end()) {
    if (keys.empty())
      refuse("parallel.server: a stage of the pipeline has no parameters for its servers; the nearest is fewer stages");
    refuse("parallel.servers = {} is more than there are parameters to keep; the nearest is {}", servers, keys.size());
  }
  return keys;
}

ServerSplit::ServerSplit(const ir::Module& module)
    : state(module.states.size(), false), asked(module.states.size(), false), belongs(module.states.size(), kNone) {
  const ir::Graph& update = module.graph("update");
  const ir::Uses uses(update);
  node.assign(update.nodes.size(), false);
  std::vector<ir::ValueId> wanted;
  for (const ir::Write& write : update.writes) {
    const ir::State& s = module.state(write.state);
    if (s.step_local) continue;
    const bool scalar = s.category == ir::Category::scalars;
    if (!s.trained && s.category != ir::Category::optimizer && !scalar && !trained_copy(module, s)) continue;
    state[index(write.state)] = true;
    wanted.push_back(write.value);
    if (s.trained) {
      belongs[index(write.state)] = write.state;
      for (const ir::Write& other : update.writes)
        if (uses.producer[index(other.value)] == uses.producer[index(write.value)] &&
            uses.producer[index(other.value)] != kNone)
          belongs[index(other.state)] = write.state;
    }
  }
  while (!wanted.empty()) {
    const std::int32_t producer = uses.producer[index(wanted.back())];
    wanted.pop_back();
    if (producer == kNone || node[index(producer)]) continue;
    node[index(producer)] = true;
    for (const ir::ValueId id : update.nodes[index(producer)].inputs)
      if (id != kNone) wanted.push_back(id);
  }
  for (const ir::Output& output : update.outputs) {
    const std::int32_t producer = uses.producer[index(output.value)];
    const ir::ValueInfo& value = update.value(output.value);
    const bool pushed = value.kind == ir::ValueInfo::Kind::state && module.state(value.state).step_local;
    // A state that the servers keep and the step gives, such as the loss scale.
    if (value.kind == ir::ValueInfo::Kind::state && state[index(value.state)]) asked[index(value.state)] = true;
    if (!pushed && (producer == kNone || !node[index(producer)])) continue;
    results.push_back(output.name);
    resulted.push_back(output.value);
  }
  for (const ir::Graph& graph : module.graphs) {
    if (graph.name == "update" || graph.name == "init" || graph.name == "refresh") continue;
    const ir::Uses read(graph);
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].kind == ir::ValueInfo::Kind::state && state[index(graph.values[v].state)] &&
          (!read.consumers[v].empty() || read.escapes[v]))
        asked[index(graph.values[v].state)] = true;
  }
}

ServerMessages::ServerMessages(const ir::Module& module, const ServerSplit& split, const ServerOptions& options)
    : keys(share_out(module, options.servers)) {
  int next = 0;
  const auto about = [&](std::size_t k, StateId id) {
    const ServerKey& key = keys[k];
    const ir::State& s = module.state(id);
    return ServerMessage{next++,    key.server, s.name, static_cast<std::int32_t>(k), part_type(s.type, key.rows),
                         key.first, key.rows};
  };
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const StateId gradient = module.find_state(gradient_name(keys[k].parameter));
    if (gradient == kNone) fail("parameter '{}' has no gradient", keys[k].parameter);
    pushes.push_back(about(k, gradient));
  }
  // Of the stages of a pipeline one has it.
  if (const StateId loss = module.find_state("loss"); loss != kNone)
    for (int s = 0; s < options.servers; ++s)
      pushes.push_back({next++, s, "loss", kNone, module.state(loss).type, 0, 0});
  for (std::size_t k = 0; k < keys.size(); ++k)
    for (std::size_t s = 0; s < split.state.size(); ++s)
      if (split.asked[s] && split.belongs[s] == module.find_state(keys[k].parameter))
        states.push_back(about(k, static_cast<StateId>(s)));
  for (std::size_t s = 0; s < split.state.size(); ++s)
    if (split.asked[s] && split.belongs[s] == kNone)
      states.push_back({next++, 0, module.states[s].name, kNone, module.states[s].type, 0, 0});
  const ir::Graph& update = module.graph("update");
  for (std::size_t r = 0; r < split.results.size(); ++r)
    results.push_back({next++, 0, split.results[r], kNone, update.type(split.resulted[r]), 0, 0});
  constexpr int kMostKeys = 32768;
  if (next > kMostKeys) fail("{} messages to and from servers are more than there are tags", next);
}

}  // namespace trireme::passes
