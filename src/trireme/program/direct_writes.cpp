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
        std::size_t within = part.offset;
        for (const ValueId piece : node.inputs) {
          run_.piece_of[index(piece)] = {part.buffer, run_.graph.type(piece), within, part.place, part.value};
          within += run_.graph.type(piece).bytes();
        }
        continue;
      }
      const auto& writes = run_.writes_of[index(whole)];
      if (writes.empty()) continue;  // a buffer of its own
      const bool plain = writes.size() == 1 && run_.uses.consumers[index(whole)].empty() &&
                         run_.writes[writes.front()].write.mode == ir::Write::Mode::set;
      if (!plain) fail("'{}' is assembled for something else than one state", run_.graph.value(whole).name);
      Write& w = run_.writes[writes.front()];
      const std::int32_t number = run_.values.made(w.write.state);
      std::size_t offset = 0;
      for (const ValueId piece : node.inputs) {
        const TensorType& type = run_.graph.type(piece);
        check_no_later_read(w.write.state, piece, offset);
        run_.piece_of[index(piece)] = {w.write.state, type, offset, {}, number};
        offset += type.bytes();
      }
      w.direct = w.done = true;
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
        if (!assembled(part)) check_no_later_read(w.write.state, part, 0);
        // The own part of it is the same value before and after the others' have come.
        const Operand all{w.write.state, run_.graph.type(whole), 0, {}, run_.values.made(w.write.state)};
        run_.piece_of[index(part)] = own_part(module_.mesh, node, all, run_.graph.type(part));
        run_.piece_of[index(whole)] = all;
        w.direct = w.done = true;
      }
    }
  }

  // Reads see the old contents, so the rows that a piece takes must have been read by then.
  void check_no_later_read(StateId state, ValueId piece, std::size_t offset) const {
    const ValueId read = run_.read_of[index(state)];
    const std::int32_t producer = run_.uses.producer[index(piece)];
    TRI_CHECK(producer != ir::kNone, "a piece of '{}' is made by no node", module_.state(state).name);
    if (read == ir::kNone) return;
    for (const std::int32_t consumer : run_.uses.consumers[index(read)]) {
      const Node& node = run_.graph.nodes[index(consumer)];
      std::int32_t last = position(consumer);
      std::size_t begin = 0;
      std::size_t end = module_.state(state).type.bytes();
      if (node.op->name == ops::kRows) {
        begin = ops::rows_offset(node, run_.graph.type(read));
        end = begin + run_.graph.type(node.outputs.front()).bytes();
      }
      if (node.op->traits.view) last = std::max(last, last_reader(node.outputs.front()));
      if (last > position(producer) && begin < offset + run_.graph.type(piece).bytes() && offset < end)
        fail("'{}' is read after its rows were written by '{}'", module_.state(state).name,
             run_.graph.value(piece).name);
    }
  }

  // When a node runs, relative to the others.
  std::int32_t position(std::int32_t node) const { return run_.position[index(node)]; }

  // The position of the last reader of a value or any view of it.
  std::int32_t last_reader(ValueId id) const {
    std::int32_t last = ir::kNone;
    for (const std::int32_t reader : run_.uses.consumers[index(id)]) {
      const Node& node = run_.graph.nodes[index(reader)];
      last = std::max(last, node.op->traits.view ? last_reader(node.outputs.front()) : position(reader));
    }
    return last;
  }

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
