#include "trireme/program/graph_run.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "trireme/core/error.h"

namespace trireme::program {

using ir::index;
using ir::Node;
using ir::ValueId;

bool is_gradient(ir::Phase phase) { return phase == ir::Phase::input_gradient || phase == ir::Phase::weight_gradient; }

namespace {

// The chunks of a micro-batch whose weight gradients have an action of their own.
std::set<int> split_chunks(std::span<const Action> actions, int micro) {
  std::set<int> chunks;
  for (const Action& action : actions)
    if (action.kind == Action::Kind::weight_gradient && action.micro == micro) chunks.insert(action.chunk);
  return chunks;
}

// By node: the action that runs it.
std::vector<Action> actions_of(const ir::Graph& graph, int micro, std::span<const Action> all) {
  const bool gradients = has_gradients(graph);
  const std::set<int> split = split_chunks(all, micro);
  std::vector<Action> actions;
  actions.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    Action::Kind kind = Action::Kind::backward;
    if (!gradients || node.phase == ir::Phase::forward)
      kind = Action::Kind::forward;
    else if (node.phase == ir::Phase::weight_gradient && split.contains(node.stage))
      kind = Action::Kind::weight_gradient;
    actions.push_back({kind, micro, node.stage});
  }
  return actions;
}

// By node: its place in the order of the actions.
std::vector<std::int32_t> positions(const std::vector<Action>& action_of, std::span<const Action> all) {
  std::vector<std::int32_t> order(action_of.size());
  std::iota(order.begin(), order.end(), 0);
  if (!all.empty()) {
    std::vector<std::ptrdiff_t> when;
    for (const Action& action : action_of) when.push_back(std::find(all.begin(), all.end(), action) - all.begin());
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return when[index(a)] < when[index(b)]; });
  }
  std::vector<std::int32_t> position(action_of.size());
  for (std::size_t k = 0; k < order.size(); ++k) position[index(order[k])] = static_cast<std::int32_t>(k);
  return position;
}

}  // namespace

bool has_gradients(const ir::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return is_gradient(n.phase); });
}

bool is_of(const Action& action, int micro) { return action.kind != Action::Kind::update && action.micro == micro; }

GraphRun::GraphRun(const ir::Module& module, const ir::Graph& g, int m, Values& all, std::span<const Action> actions)
    : graph(g),
      micro(m),
      values(all),
      uses(g),
      action_of(actions_of(g, m, actions)),
      position(positions(action_of, actions)),
      lowered(g.nodes.size(), false),
      read_of(module.states.size(), ir::kNone),
      writes_of(g.values.size()),
      buffer_of(g.values.size(), kNone),
      offset_of(g.values.size(), 0),
      place_of(g.values.size()),
      number_of(g.values.size(), kNone),
      piece_of(g.values.size()) {
  for (std::size_t v = 0; v < g.values.size(); ++v) {
    if (g.values[v].kind != ir::ValueInfo::Kind::state) continue;
    read_of[index(g.values[v].state)] = static_cast<ValueId>(v);
    buffer_of[v] = g.values[v].state;
  }
  for (const ir::Write& write : g.writes) {
    writes_of[index(write.value)].push_back(writes.size());
    writes.push_back({write, false, false});
  }
}

Operand GraphRun::operand(ValueId id) const {
  if (id == ir::kNone) return {};
  std::int32_t number = number_of[index(id)];
  if (number == kNone && graph.value(id).kind == ir::ValueInfo::Kind::state)
    number = values.held(graph.value(id).state);
  return {buffer_of[index(id)], graph.type(id), offset_of[index(id)], place_of[index(id)], number};
}

void GraphRun::settle(ValueId id, const Operand& where) {
  buffer_of[index(id)] = where.buffer;
  offset_of[index(id)] = where.offset;
  place_of[index(id)] = where.place;
  number_of[index(id)] = where.value;
}

void GraphRun::write(ir::StateId state, std::int32_t value) {
  if (const ValueId read = read_of[index(state)]; read != ir::kNone && number_of[index(read)] == kNone)
    number_of[index(read)] = values.held(state);
  values.hold(state, value);
}

bool GraphRun::is_made(ValueId id) const {
  const std::int32_t producer = uses.producer[index(id)];
  return producer == ir::kNone || lowered[index(producer)];
}

bool GraphRun::wanted_later(ValueId id) const {
  const auto& consumers = uses.consumers[index(id)];
  return std::any_of(consumers.begin(), consumers.end(), [&](std::int32_t node) { return !lowered[index(node)]; }) ||
         std::any_of(graph.outputs.begin(), graph.outputs.end(),
                     [&](const ir::Output& output) { return output.value == id; });
}

Operand own_part(const ir::Mesh& mesh, const Node& node, const Operand& whole, const TensorType& part) {
  const auto axis = std::find_if(mesh.axes.begin(), mesh.axes.end(),
                                 [&](const ir::Mesh::Axis& a) { return a.name == node.attributes.text("axis"); });
  if (axis == mesh.axes.end()) fail("there is no mesh axis '{}'", node.attributes.text("axis"));
  TRI_CHECK(whole.place.axis == kNone, "the own rows along {} of what is a rank's own already", axis->name);
  return {whole.buffer, part, whole.offset,
          Place{static_cast<std::int32_t>(axis - mesh.axes.begin()), axis->size, part.bytes()}, whole.value};
}

namespace {

class StateOrder {
 public:
  StateOrder(const ir::Module& module, const ir::Graph& body, std::span<const Action> actions)
      : module_(module), body_(body), actions_(actions), uses_(body) {
    for (const Action& action : actions)
      if (action.kind != Action::Kind::update) micro_batches_ = std::max(micro_batches_, action.micro + 1);
    for (int micro = 0; micro < micro_batches_; ++micro) action_of_.push_back(actions_of(body, micro, actions));
  }

  void check() const {
    if (micro_batches_ < 2) return;
    for (const ir::Write& write : body_.writes) {
      const ValueId read = read_of(write.state);
      if (write.mode == ir::Write::Mode::add && read == ir::kNone) continue;  // sums may be added in any order
      std::vector<std::int32_t> readers;
      if (read != ir::kNone) find_readers(read, readers);
      const std::int32_t writer = uses_.producer[index(write.value)];
      for (int micro = 1; micro < micro_batches_; ++micro) {
        const Action before = action(writer, micro - 1);
        follows(write.state, "write", before, action(writer, micro));
        for (const std::int32_t reader : readers) follows(write.state, "read", before, action(reader, micro));
      }
    }
  }

 private:
  ValueId read_of(ir::StateId state) const {
    for (std::size_t v = 0; v < body_.values.size(); ++v)
      if (body_.values[v].kind == ir::ValueInfo::Kind::state && body_.values[v].state == state)
        return static_cast<ValueId>(v);
    return ir::kNone;
  }

  // Nodes that read a value or a view of it; kNone: an output, which is read first of all.
  void find_readers(ValueId id, std::vector<std::int32_t>& readers) const {
    if (uses_.escapes[index(id)]) readers.push_back(ir::kNone);
    for (const std::int32_t n : uses_.consumers[index(id)]) {
      readers.push_back(n);
      const Node& node = body_.nodes[index(n)];
      if (node.op->traits.view) find_readers(node.outputs.front(), readers);
    }
  }

  Action action(std::int32_t node, int micro) const {
    if (node == ir::kNone) return {Action::Kind::forward, micro};
    return action_of_[index(micro)][index(node)];
  }

  void follows(ir::StateId state, const char* what, const Action& before, const Action& after) const {
    const auto place = [&](const Action& a) { return std::find(actions_.begin(), actions_.end(), a); };
    if (place(after) < place(before))
      refuse(
          "{} would {} state '{}' before {} has written it: what a micro-batch leaves for the next, such as running "
          "statistics, wants the micro-batches in their order; the nearest is \"1f1b\"",
          to_text(after), what, module_.state(state).name, to_text(before));
  }

  const ir::Module& module_;
  const ir::Graph& body_;
  std::span<const Action> actions_;
  ir::Uses uses_;
  std::vector<std::vector<Action>> action_of_;  // by micro-batch and node
  int micro_batches_ = 0;
};

}  // namespace

void check_state_order(const ir::Module& module, const ir::Graph& body, std::span<const Action> actions) {
  StateOrder(module, body, actions).check();
}

}  // namespace trireme::program
