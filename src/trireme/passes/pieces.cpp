#include "trireme/passes/pieces.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/device/kernel.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/optimizer/clip.h"
#include "trireme/ops/tier/tier.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

class Cutter {
 public:
  Cutter(ir::Module& module, const std::string& graph, const PieceOptions& options)
      : module_(module), options_(options), rebuild_(module, graph), uses_(old()), pieces_(old().values.size()) {
    write_of_.assign(old().values.size(), kNone);
    whole_.assign(old().values.size(), kNone);
    kept_pieces_.resize(old().values.size());
    gathered_.assign(old().values.size(), false);
    for (std::size_t w = 0; w < old().writes.size(); ++w) {
      const ir::Write& write = old().writes[w];
      std::int32_t& known = write_of_[index(write.value)];
      if (known != kNone && module_.state(write.state).tier != 0)
        fail("'{}' is written to a state of another tier and to a second one", old().value(write.value).name);
      if (known == kNone) known = static_cast<std::int32_t>(w);
    }
  }

  void run() {
    find_groups();
    for (std::size_t n = 0; n < old().nodes.size(); ++n) {
      const Node& node = old().nodes[n];
      if (group_of_[n] == kNone)
        copy_whole(node);
      else if (groups_[index(group_of_[n])].back() == n)
        emit(groups_[index(group_of_[n])]);
    }
    for (const auto& [id, stored] : stored_outputs_) rebuild_.map(id, stored);
    const std::string name = old().name;
    rebuild_.finish();
    // A step-local accumulator that is elsewhere is not reduced in place, and nothing reads its sum from there.
    std::erase_if(module_.graph(name).writes, [&](const ir::Write& write) { return is_left(write); });
  }

 private:
  const Graph& old() const { return rebuild_.old(); }

  bool away(ValueId id) const {
    return id != kNone && old().value(id).kind == ir::ValueInfo::Kind::state &&
           module_.state(old().value(id).state).tier != 0;
  }

  bool is_left(const ir::Write& write) const {
    const ir::State& state = module_.state(write.state);
    return state.tier != 0 && state.step_local && write.mode == ir::Write::Mode::set;
  }

  // Made in pieces that were stored as soon as they were made.
  bool was_stored(ValueId id) const {
    if (id == kNone || kept_pieces_[index(id)].empty()) return false;
    const ir::State* const state = written(id);
    return state != nullptr && state->tier != 0;
  }

  // The state that a value becomes, if any.
  const ir::State* written(ValueId id) const {
    const std::int32_t w = write_of_[index(id)];
    return w == kNone ? nullptr : &module_.state(old().writes[index(w)].state);
  }

  static bool can_cut(const Node& node) {
    return (node.op->traits.elementwise && !node.inputs.empty()) || node.op->name == "random_init" ||
           node.op->name == "sum_squares";
  }

  // What is cut along: the shape of the first output that has rows, or for a sum that of its operand.
  const Shape& shape_of(const Node& node) const {
    return node.op->name == "sum_squares" ? old().type(node.inputs.front()).shape
                                          : old().type(node.outputs.front()).shape;
  }

  // Nodes that are cut, those that pass pieces to each other together.
  void find_groups() {
    group_of_.assign(old().nodes.size(), kNone);
    std::vector<std::int32_t> cut_by(old().values.size(), kNone);  // the group that makes this value in pieces
    for (std::size_t n = 0; n < old().nodes.size(); ++n) {
      const Node& node = old().nodes[n];
      std::int32_t group = kNone;
      bool cut = false;
      for (const ValueId id : node.inputs) {
        cut = cut || away(id);
        if (id == kNone || cut_by[index(id)] == kNone) continue;
        if (!can_cut(node)) {
          gathered_[index(id)] = true;
          continue;
        }
        if (group != kNone && group != cut_by[index(id)])
          fail("{} '{}' reads pieces of two tensors", node.op->name, old().value(node.outputs.front()).name);
        group = cut_by[index(id)];
      }
      for (const ValueId id : node.outputs)
        if (const ir::State* state = written(id)) cut = cut || state->tier != 0;
      if (!can_cut(node)) continue;
      if (!cut && group == kNone) continue;
      if (group == kNone) {
        group = static_cast<std::int32_t>(groups_.size());
        groups_.emplace_back();
      }
      groups_[index(group)].push_back(n);
      group_of_[n] = group;
      if (node.op->name == "sum_squares") continue;
      for (const ValueId id : node.outputs) cut_by[index(id)] = group;
    }
  }

  // Whether the host's cores can make all of a group: a sum of what is on the device is better taken there.
  bool on_host(const std::vector<std::size_t>& group) const {
    return options_.on_host && std::all_of(group.begin(), group.end(), [&](std::size_t n) {
             const ir::OpDef& op = *old().nodes[n].op;
             return op.traits.elementwise && op.kernels.contains(device::Kind::cpu);
           });
  }

  struct Range {
    const Shape& shape;
    std::int64_t start;
    std::int64_t end;
    std::int64_t rows;
    bool whole() const { return start == 0 && end == rows; }
  };

  // What the host's cores need of the device leaves before anything comes back: it may be what that takes the place of.
  void store_operands(const std::vector<std::size_t>& group, const std::vector<Range>& ranges) {
    stored_rows_.clear();
    std::set<ValueId> made;
    for (const std::size_t n : group) made.insert(old().nodes[n].outputs.begin(), old().nodes[n].outputs.end());
    for (const Range& range : ranges)
      for (const std::size_t n : group)
        for (const ValueId id : old().nodes[n].inputs)
          if (id != kNone && !away(id) && !made.contains(id)) piece_of(old().nodes[n], id, range);
  }

  void emit(const std::vector<std::size_t>& group) {
    on_host_ = on_host(group);
    const Shape shape = shape_of(old().nodes[group.front()]);
    const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
    const std::int64_t step = shape.rank() == 0 ? 1 : piece_rows(shape, options_.bytes);
    std::vector<Range> ranges;
    for (std::int64_t start = 0; start < rows; start += step)
      ranges.push_back({shape, start, std::min(rows, start + step), rows});
    if (on_host_) store_operands(group, ranges);
    for (const Range& range : ranges)
      for (const std::size_t n : group) emit_piece(old().nodes[n], range);
    for (const std::size_t n : group)
      if (old().nodes[n].op->name != "sum_squares")
        for (const ValueId id : old().nodes[n].outputs) assemble(old().nodes[n], id);
  }

  ValueId piece_of(const Node& node, ValueId id, const Range& range) {
    if (id == kNone) return kNone;
    if (!pieces_[index(id)].empty()) return pieces_[index(id)].back();
    ValueId value = rebuild_.mapped(id);
    const std::string name = plain_name(id);
    const bool has_rows = old().type(id).shape == range.shape;
    ValueId* stored = nullptr;
    if (on_host_ && !away(id)) {
      stored = has_rows ? &stored_rows_.try_emplace({id, range.start}, kNone).first->second
                        : &stored_whole_.try_emplace(id, kNone).first->second;
      if (*stored != kNone) return *stored;
    }
    if (has_rows && !range.whole())
      value =
          rebuild_
              .add(std::string(ops::kRows), {value}, {{"start", range.start}, {"end", range.end}}, name + ".rows", node)
              .front();
    if (stored != nullptr) return *stored = store(value, name, node);
    if (away(id) && !on_host_) value = load(value, name, node);
    return value;
  }

  ValueId store(ValueId value, const std::string& name, const Node& like) {
    return rebuild_
        .add(std::string(ops::kStore), {value}, {{"tier", std::int64_t{options_.tier}}}, name + ".store", like)
        .front();
  }

  ValueId load(ValueId value, const std::string& name, const Node& like) {
    return rebuild_.add(std::string(ops::kLoad), {value}, {}, name + ".load", like).front();
  }

  std::string plain_name(ValueId id) const {
    const std::string& name = old().value(id).name;
    return name.starts_with('@') ? name.substr(1) : name;
  }

  void emit_piece(const Node& node, const Range& range) {
    if (node.op->name == "sum_squares" && !range.whole()) {
      emit_sum(node, range);
      return;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(piece_of(node, id, range));
    ir::Attributes changed;
    if (node.op->name == "random_init" && range.shape.rank() > 0) {
      std::vector<std::int64_t> dims(range.shape.begin(), range.shape.end());
      changed.set("first", node.attributes.integer("first") + range.start * (range.shape.elements() / dims[0]));
      dims[0] = range.end - range.start;
      changed.set("shape", dims);
    }
    const std::vector<ValueId> made = rebuild_.add_like(node, inputs, changed);
    rebuild_.fresh().nodes.back().on_host = on_host_;
    if (node.op->name == "sum_squares") return;
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      pieces_[index(id)].push_back(made[o]);
      const ir::State* state = written(id);
      if (state == nullptr && !gathered_[index(id)]) continue;
      const bool leaves = state != nullptr && state->tier != 0;
      ValueId kept = made[o];
      if (leaves != on_host_) kept = leaves ? store(kept, plain_name(id), node) : load(kept, plain_name(id), node);
      kept_pieces_[index(id)].push_back(kept);
    }
  }

  // The sum so far is passed from piece to piece.
  void emit_sum(const Node& node, const Range& range) {
    const ValueId id = node.outputs.front();
    const ValueId before = range.start == 0 ? kNone : rebuild_.mapped(id);
    const ValueId piece = piece_of(node, node.inputs.front(), range);
    const bool last = range.end == range.rows;
    rebuild_.map(
        id, rebuild_.add("sum_squares_part", {piece, before}, {{"last", last}}, old().value(id).name, node).front());
  }

  // The whole of a value that was made in pieces: what its state is written with, or what is read as a whole.
  void assemble(const Node& node, ValueId id) {
    if (written(id) == nullptr && !gathered_[index(id)]) return;
    const std::vector<ValueId>& kept = kept_pieces_[index(id)];
    rebuild_.map(id,
                 kept.size() == 1
                     ? kept.front()
                     : rebuild_.add(std::string(ops::kAssemble), kept, {}, plain_name(id) + ".whole", node).front());
  }

  void copy_whole(const Node& node) {
    std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (!away(id) && !was_stored(id)) continue;
      ValueId& loaded = whole_[index(id)];
      if (loaded == kNone) loaded = load(inputs[i], plain_name(id), node);
      inputs[i] = loaded;
    }
    if (node.op->name == ops::kOwnRows && of_state_away(node.inputs.front()))
      inputs.front() = padded(inputs.front(), node);
    rebuild_.add_like(node, inputs);
    for (const ValueId id : node.outputs)
      if (const ir::State* state = written(id); state != nullptr && state->tier != 0 && !state->step_local)
        stored_outputs_[id] = store(rebuild_.mapped(id), plain_name(id), node);
  }

  bool of_state_away(ValueId id) const {
    while (!away(id)) {
      const std::int32_t producer = uses_.producer[index(id)];
      if (producer == kNone || !old().nodes[index(producer)].op->traits.view) return false;
      id = old().nodes[index(producer)].inputs.front();
    }
    return true;
  }

  // A state has room for all ranks' equal parts; of what was loaded, rows of zeros fill the last ones up.
  ValueId padded(ValueId rows, const Node& own) {
    const std::int64_t all = old().type(own.outputs.front()).shape[0] * own.attributes.integer("parts");
    if (rebuild_.fresh().type(rows).shape[0] == all) return rows;
    return rebuild_
        .add("slice_grad", {rows}, {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}, {"extent", all}}, "padded",
             own)
        .front();
  }

  ir::Module& module_;
  const PieceOptions& options_;
  Rebuild rebuild_;
  ir::Uses uses_;
  bool on_host_ = false;  // of the group that is emitted
  // Old value and first row of a piece → what the host has of it; and old value → what it has for all pieces.
  std::map<std::pair<ValueId, std::int64_t>, ValueId> stored_rows_;
  std::map<ValueId, ValueId> stored_whole_;
  std::vector<std::vector<ValueId>> pieces_;       // by old value: its pieces so far, where they are made
  std::vector<std::vector<ValueId>> kept_pieces_;  // by old value: its pieces where their state is
  std::vector<bool> gathered_;                     // by old value: made in pieces and read as a whole
  std::vector<ValueId> whole_;                     // by old value: a state that was loaded as a whole
  std::map<ValueId, ValueId> stored_outputs_;      // old value → what is stored of it, where it was made as a whole
  std::vector<std::int32_t> write_of_;             // by old value
  std::vector<std::int32_t> group_of_;             // by node
  std::vector<std::vector<std::size_t>> groups_;   // nodes
};

}  // namespace

std::int64_t piece_rows(const Shape& shape, std::size_t bytes) {
  const std::int64_t rows = shape[0];
  const std::int64_t row = rows == 0 ? 1 : std::max<std::int64_t>(1, shape.elements() / rows);
  // A chunk of the smallest dtype is a whole number of pages.
  const std::int64_t unit = ops::kSumChunk / std::gcd(row, ops::kSumChunk);
  constexpr std::size_t kLeast = std::size_t{256} << 10;
  constexpr std::size_t kMaxPieces = 256;
  const std::size_t whole = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  bytes = std::max(std::min(bytes, std::max(whole / 4, kLeast)), whole / kMaxPieces);
  const auto wanted = static_cast<std::int64_t>(bytes / sizeof(float)) / row / unit * unit;
  return std::clamp<std::int64_t>(wanted, std::min(unit, std::max<std::int64_t>(rows, 1)),
                                  std::max<std::int64_t>(rows, 1));
}

void cut_in_pieces(ir::Module& module, const std::string& graph, const PieceOptions& options) {
  Cutter(module, graph, options).run();
}

}  // namespace trireme::passes
