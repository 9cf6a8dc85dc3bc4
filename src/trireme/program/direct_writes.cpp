#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/tier/tier.h"
#include "trireme/program/graph_run.h"

namespace trireme::program {
namespace {

using ir::index;
using ir::Node;
using ir::StateId;
using ir::ValueId;
using Write = GraphRun::Write;

class Planner {
 public:
  Planner(const ir::Module& module, GraphRun& run) : module_(module), run_(run) {}

  void run() {
    plan_gathers();
    plan_pieces();
    plan_writes();
  }

 private:
  // What is assembled from pieces is made in place: each piece goes straight to its rows of the state.
  void plan_pieces() {
    for (const Node& node : run_.graph.nodes) {
      if (node.op->name != ops::kAssemble) continue;
      const ValueId whole = node.outputs.front();
      if (const Operand& part = run_.piece_of[index(whole)]; part.buffer != kNone) {
        place_pieces(node, part);
        continue;
      }
      const auto& writes = run_.writes_of[index(whole)];
      if (writes.empty()) continue;  // a buffer of its own
      const bool plain = writes.size() == 1 && run_.uses.consumers[index(whole)].empty() &&
                         run_.writes[writes.front()].write.mode == ir::Write::Mode::set;
      if (!plain) fail("'{}' is assembled for something else than one state", run_.graph.value(whole).name);
      Write& w = run_.writes[writes.front()];
      place_pieces(node, {w.write.state, run_.graph.type(whole), 0, {}, run_.values.made(w.write.state)});
      w.direct = w.done = true;
    }
  }

  // One after another in `whole`, which is a state or a part of one.
  void place_pieces(const Node& assemble, const Operand& whole) {
    std::size_t offset = whole.offset;
    for (const ValueId piece : assemble.inputs) {
      const Operand to{whole.buffer, run_.graph.type(piece), offset, whole.place, whole.value};
      if (const std::string why = obstacle(piece, to); !why.empty()) fail("{}", why);
      run_.piece_of[index(piece)] = to;
      offset += to.type.bytes();
    }
  }

  bool assembled(ValueId id) const {
    const std::int32_t producer = run_.uses.producer[index(id)];
    return producer != ir::kNone && run_.graph.nodes[index(producer)].op->name == ops::kAssemble;
  }

  // Who reads a value, where that is one view of all of it: that view.
  ValueId seen_as(ValueId id) const {
    const auto& consumers = run_.uses.consumers[index(id)];
    if (consumers.size() != 1 || !run_.writes_of[index(id)].empty()) return id;
    const Node& node = run_.graph.nodes[index(consumers.front())];
    return node.op->name == "reshape" ? node.outputs.front() : id;
  }

  // A part that is gathered to be a state's new contents is made where it belongs there.
  void plan_gathers() {
    for (const Node& node : run_.graph.nodes) {
      if (node.op->name != ops::kAllGather) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId part = node.inputs[i];
        const ValueId whole = node.outputs[i];
        const auto& writes = run_.writes_of[index(seen_as(whole))];
        const bool plain = writes.size() == 1 && run_.uses.consumers[index(seen_as(whole))].empty() &&
                           run_.writes[writes.front()].write.mode == ir::Write::Mode::set &&
                           (made_by_plain_node(part) || assembled(part)) && run_.writes_of[index(part)].empty();
        if (!plain) continue;
        Write& w = run_.writes[writes.front()];
        // The own part of it is the same value before and after the others' have come.
        Operand all{w.write.state, run_.graph.type(whole)};
        Operand own = own_part(module_.mesh, node, all, run_.graph.type(part));
        if (!assembled(part) && !obstacle(part, own).empty()) continue;
        all.value = own.value = run_.values.made(w.write.state);
        run_.piece_of[index(part)] = own;
        run_.piece_of[index(whole)] = all;
        w.direct = w.done = true;
      }
    }
  }

  // Why a value cannot be made at `to`, in a state's buffer; empty: it can. Reads see the old contents, so what is
  // there must have been read by then; the node that makes the value may read them itself if its op works in place.
  std::string obstacle(ValueId piece, const Operand& to) const {
    const ValueId read = run_.read_of[index(to.buffer)];
    TRI_CHECK(run_.uses.producer[index(piece)] != ir::kNone, "a piece of '{}' is made by no node",
              module_.state(to.buffer).name);
    return read == ir::kNone ? "" : obstacle(piece, to, read, {to.buffer, run_.graph.type(read)});
  }
  // Of the readers of `id`, which is what was at `at`, and of its views.
  std::string obstacle(ValueId piece, const Operand& to, ValueId id, const Operand& at) const {
    const std::int32_t producer = run_.uses.producer[index(piece)];
    const std::string& state = module_.state(to.buffer).name;
    const std::string& name = run_.graph.value(piece).name;
    const bool met = meet(at, to);
    if (met && run_.uses.escapes[index(id)])
      return fmt::format("'{}' is an output, and '{}' is written there", state, name);
    for (const std::int32_t consumer : run_.uses.consumers[index(id)]) {
      const Node& node = run_.graph.nodes[index(consumer)];
      if (node.op->traits.view) {
        const std::string why = obstacle(piece, to, node.outputs.front(), seen_through(node, at));
        if (!why.empty()) return why;
      } else if (met && position(consumer) > position(producer)) {
        return fmt::format("'{}' is read after its rows were written by '{}'", state, name);
      } else if (met && consumer == producer && !works_in_place(node, piece, to, id, at)) {
        return fmt::format("'{}' would be written over rows of '{}' that {} reads for it, which does not work in place",
                           name, state, node.op->name);
      }
    }
    return "";
  }

  // Where a view of what is at `at` is.
  Operand seen_through(const Node& view, const Operand& at) const {
    const TensorType& type = run_.graph.type(view.outputs.front());
    if (view.op->name == ops::kOwnRows) return own_part(module_.mesh, view, at, type);
    Operand seen{at.buffer, type, at.offset, at.place};
    if (view.op->name == ops::kRows) seen.offset += ops::rows_offset(view, run_.graph.type(view.inputs.front()));
    return seen;
  }

  // Parts with the same place move together from rank to rank; of others some rank's may meet.
  static bool meet(const Operand& a, const Operand& b) {
    const bool same = a.place == b.place;
    return a.offset < b.offset + (same ? b.type.bytes() : b.extent()) &&
           b.offset < a.offset + (same ? a.type.bytes() : a.extent());
  }

  static bool works_in_place(const Node& node, ValueId piece, const Operand& to, ValueId id, const Operand& at) {
    const auto output = std::find(node.outputs.begin(), node.outputs.end(), piece) - node.outputs.begin();
    if (at.offset != to.offset || at.place != to.place || at.type.bytes() != to.type.bytes()) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == id && !node.op->traits.allows_in_place(static_cast<int>(output), static_cast<int>(i)))
        return false;
    return true;
  }

  // When a node runs, relative to the others.
  std::int32_t position(std::int32_t node) const { return run_.position[index(node)]; }

  void plan_writes() {
    std::vector<bool> taken(run_.graph.values.size(), false);
    for (const ir::Output& output : run_.graph.outputs) taken[index(output.value)] = true;
    for (Write& w : run_.writes) {
      const std::size_t value = index(w.write.value);
      if (w.done || taken[value] || !made_by_plain_node(w.write.value)) continue;
      if (w.write.mode == ir::Write::Mode::set && !made_where_it_stays(w.write)) continue;
      w.direct = w.write.mode == ir::Write::Mode::set ? can_set_directly(w.write) : can_add_directly(w.write);
      taken[value] = w.direct;
    }
  }

  bool made_by_plain_node(ValueId value) const {
    const std::int32_t producer = run_.uses.producer[index(value)];
    if (producer == ir::kNone || run_.graph.nodes[index(producer)].op->traits.view) return false;
    // A view of the value would keep reading the state's buffer after it changes.
    for (const std::int32_t consumer : run_.uses.consumers[index(value)])
      if (run_.graph.nodes[index(consumer)].op->traits.view) return false;
    return true;
  }

  bool made_where_it_stays(const ir::Write& write) const {
    const Node& node = run_.graph.nodes[index(run_.uses.producer[index(write.value)])];
    return (node.op->name == ops::kStore || node.on_host) == (module_.state(write.state).tier != 0);
  }

  // The node may write the new contents straight over the old ones when nobody reads the old ones later, and its op can
  // work in place if it reads them itself.
  bool can_set_directly(const ir::Write& write) const {
    const ValueId read = run_.read_of[index(write.state)];
    if (read == ir::kNone) return true;
    if (run_.uses.escapes[index(read)]) return false;
    const std::int32_t producer = run_.uses.producer[index(write.value)];
    const Node& node = run_.graph.nodes[index(producer)];
    const auto output =
        static_cast<int>(std::find(node.outputs.begin(), node.outputs.end(), write.value) - node.outputs.begin());
    for (const std::int32_t consumer : run_.uses.consumers[index(read)]) {
      if (position(consumer) > position(producer) || run_.graph.nodes[index(consumer)].op->traits.view) return false;
      if (consumer != producer) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] == read && !node.op->traits.allows_in_place(output, static_cast<int>(i))) return false;
    }
    return true;
  }

  // A contribution that nobody else wants may go straight to the sum's buffer.
  bool can_add_directly(const ir::Write& write) const {
    return run_.uses.consumers[index(write.value)].empty() && run_.writes_of[index(write.value)].size() == 1 &&
           run_.graph.type(write.value) == module_.state(write.state).type &&
           run_.read_of[index(write.state)] == ir::kNone;
  }

  const ir::Module& module_;
  GraphRun& run_;
};

}  // namespace

void plan_direct_writes(const ir::Module& module, GraphRun& run) { Planner(module, run).run(); }

}  // namespace trireme::program
