#include "trireme/passes/zero.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/message.h"
#include "trireme/ops/random/window.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/partition.h"
#include "trireme/passes/rebuild.h"
#include "trireme/passes/routes.h"
#include "trireme/passes/split.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Module;
using ir::Node;
using ir::Phase;
using ir::State;
using ir::StateId;
using ir::ValueId;

class StateCutter {
 public:
  StateCutter(Module& module, const Zero::Options& options)
      : module_(module), options_(options), parts_(module.mesh.size_of(options.axis)) {}

  void run() {
    choose();
    for (const std::string& graph : graphs()) {
      if (is_update(graph))
        rebuild_update(graph);
      else if (graph == kTies)
        rebuild_ties();
      else if (graph == kRemember || graph == kRewind)
        rebuild_parts(graph);
      else if (graph == "init" || graph == "refresh")
        rebuild_start(graph);
      else
        rebuild_use(graph);
    }
  }

 private:
  std::vector<std::string> graphs() const {
    std::vector<std::string> names;
    for (const ir::Graph& graph : module_.graphs) names.push_back(graph.name);
    return names;
  }

  static bool is_update(const std::string& graph) { return graph == "update" || graph == kWarmUpdate; }

  bool is_cut(StateId state) const { return module_.state(state).block.rank() > 0; }

  // A scalar has no rows to shard. A single row has nothing that a part of it could leave out, and a part that is as
  // large as the whole could not be known from it.
  static bool has_rows(const State& state) { return state.type.shape.rank() > 0 && state.type.shape.as_rows()[0] > 1; }

  // The rows of what a rank has are sharded further.
  void cut(StateId id) {
    State& state = module_.state(id);
    if (state.whole.rank() == 0) state.whole = state.type.shape;
    state.block = state.type.shape;
    state.row_axes = {options_.axis};
    state.type.shape = part_of(state.block);
    std::erase_if(state.sharding.partial, [&](const ir::Sharding::Partial& p) { return p.axis == options_.axis; });
  }

  // Whole, and with room for all parts.
  void make_room(StateId id) {
    State& state = module_.state(id);
    const std::int64_t elements = part_of(state.type.shape).elements() * parts_;
    if (elements != state.type.elements()) state.room = elements;
  }

  Shape part_of(const Shape& whole) const {
    Shape part = whole.as_rows();
    part[0] = ops::part_rows(part[0], parts_);
    return part;
  }

  // The same bytes in another shape.
  static ValueId viewed(Rebuild& rebuild, ValueId id, const Shape& shape, const Node& like) {
    const ir::ValueInfo value = rebuild.fresh().value(id);
    if (value.type.shape == shape) return id;
    const std::string label = value.kind == ir::ValueInfo::Kind::state ? value.name.substr(1) : value.name;
    return rebuild
        .add("reshape", {id}, {{"shape", std::vector<std::int64_t>(shape.begin(), shape.end())}}, label + ".view", like)
        .front();
  }

  StateId low_copy(const std::string& parameter) const {
    for (std::size_t i = 0; i < module_.states.size(); ++i)
      if (module_.states[i].derived_from == parameter) return static_cast<StateId>(i);
    return kNone;
  }

  void choose() {
    for (std::size_t i = 0; i < module_.states.size(); ++i) {
      const auto parameter = static_cast<StateId>(i);
      const State& state = module_.state(parameter);
      if (!has_rows(state)) continue;
      // Weights that are only read, and so not saved.
      if (!state.trained && options_.stage >= 3 && state.category == ir::Category::weights && !state.saved &&
          state.derived_from.empty() && !shards(state.sharding, options_.axis))
        cut(parameter);
      if (!state.trained) continue;
      const StateId gradient = module_.find_state(gradient_name(state.name));
      TRI_CHECK(gradient != kNone, "parameter '{}' has no gradient", state.name);
      // What an annotation shards over the axis is shared out already, and its ranks may have whole gradients of
      // others.
      if (!has_terms(module_.state(gradient))) continue;
      const StateId low = low_copy(state.name);
      parameters_.insert(parameter);
      if (!options_.whole_sums) {
        gradients_.insert(gradient);
        options_.stage >= 2 ? cut(gradient) : make_room(gradient);
      }
      if (low != kNone) options_.stage >= 3 ? cut(low) : make_room(low);
      low != kNone || options_.stage >= 3 ? cut(parameter) : make_room(parameter);
    }
    for (const StateId state : updated_by_element()) cut(state);
    // Others of the optimizer's, which the update reads or graphs like it set, are whole.
    for (std::size_t i = 0; i < module_.states.size(); ++i) {
      const auto other = static_cast<StateId>(i);
      const State& state = module_.state(other);
      if (state.category != ir::Category::optimizer || state.step_local || is_cut(other) || is_compression_state(state))
        continue;
      if (has_rows(state)) make_room(other);
    }
  }

  // The optimizer's states that nodes which make a parameter anew make too, and that no other node looks at.
  std::set<StateId> updated_by_element() const {
    std::set<StateId> made;
    std::set<StateId> looked_at;
    for (const ir::Graph& graph : module_.graphs) {
      if (!is_update(graph.name)) continue;
      const Written written = written_by(graph);
      for (const Node& node : graph.nodes) {
        if (updates(written, node) == kNone) {
          for (const ValueId id : node.inputs) looked_at.insert(state_read(graph, id));
          continue;
        }
        for (const ValueId id : node.outputs)
          for (const StateId state : states_written(written, id))
            if (module_.state(state).category == ir::Category::optimizer) made.insert(state);
      }
    }
    std::erase_if(made, [&](StateId state) { return looked_at.contains(state); });
    return made;
  }

  // Whether each rank along the axis has one term of a gradient.
  bool has_terms(const State& gradient) const {
    return std::any_of(gradient.sharding.partial.begin(), gradient.sharding.partial.end(),
                       [&](const ir::Sharding::Partial& p) { return p.axis == options_.axis; });
  }

  // Of a graph that updates: states by what they become.
  using Written = std::map<ValueId, std::vector<StateId>>;
  static Written written_by(const ir::Graph& graph) {
    Written written;
    for (const ir::Write& write : graph.writes) written[write.value].push_back(write.state);
    return written;
  }
  static const std::vector<StateId>& states_written(const Written& written, ValueId value) {
    static const std::vector<StateId> none;
    const auto found = written.find(value);
    return found == written.end() ? none : found->second;
  }

  // The parameter that a node of the update makes anew.
  StateId updates(const Written& written, const Node& node) const {
    for (const ValueId made : node.outputs)
      for (const StateId state : states_written(written, made))
        if (parameters_.contains(state)) return state;
    return kNone;
  }

  ir::Attributes over_axis() const { return {{"axis", options_.axis}, {"parts", static_cast<std::int64_t>(parts_)}}; }

  ValueId gather(Rebuild& rebuild, ValueId part, const Shape& whole, const std::string& label, const Node& like) const {
    ir::Attributes attributes = over_axis();
    attributes.set("rows", std::vector<std::int64_t>{whole.as_rows()[0]});
    const ValueId rows = rebuild.add(std::string(ops::kAllGather), {part}, attributes, label + ".whole", like).front();
    return viewed(rebuild, rows, whole, like);
  }

  ValueId scatter(Rebuild& rebuild, ValueId whole, const std::string& label, const Node& like) const {
    const ValueId rows = viewed(rebuild, whole, rebuild.fresh().type(whole).shape.as_rows(), like);
    return rebuild.add(std::string(ops::kReduceScatter), {rows}, over_axis(), label + ".part", like).front();
  }

  static StateId state_read(const ir::Graph& graph, ValueId id) {
    return id != kNone && graph.value(id).kind == ir::ValueInfo::Kind::state ? graph.value(id).state : kNone;
  }

  void rebuild_update(const std::string& graph) {
    Rebuild rebuild(module_, graph);
    const ir::Graph& old = rebuild.old();
    std::set<ValueId> terms;  // fresh values of which each rank has one term of the sum
    const Written written = written_by(old);
    parts_of_sums_.clear();
    for (const Node& node : old.nodes) {
      const bool over_axis = node.op->name == ops::kAllReduce && node.attributes.text("axis") == options_.axis;
      const StateId reduced = over_axis ? state_read(old, node.inputs.front()) : kNone;
      std::vector<ValueId> inputs = rebuild.mapped(node.inputs);
      if (reduced != kNone && gradients_.contains(reduced)) {
        const ValueId part =
            is_cut(reduced) ? inputs.front() : scatter(rebuild, inputs.front(), module_.state(reduced).name, node);
        rebuild.map(node.outputs.front(), part);
        parts_of_sums_.insert(part);
        continue;
      }
      if (updates(written, node) != kNone) {
        update(rebuild, node, std::move(inputs));
        continue;
      }
      add_sum(rebuild, node, std::move(inputs), terms);
    }
    finish(rebuild);
  }

  // Squares of parts are terms of the whole's sum; their sum is brought together where it leaves the additions.
  void add_sum(Rebuild& rebuild, const Node& node, std::vector<ValueId> inputs, std::set<ValueId>& terms) {
    const auto is_term = [&](ValueId id) { return terms.contains(id); };
    const bool of_part =
        std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return parts_of_sums_.contains(id); });
    if (of_part && node.op->name == ops::kAllReduce) {  // over another axis
      parts_of_sums_.insert(rebuild.add_like(node, std::move(inputs)).front());
      return;
    }
    if (of_part) {
      if (node.op->name != "sum_squares") fail("{} looks at parts of gradients", node.op->name);
      terms.insert(rebuild.add_like(node, std::move(inputs)).front());
      return;
    }
    if (std::none_of(inputs.begin(), inputs.end(), is_term)) {
      rebuild.add_like(node, std::move(inputs));
      return;
    }
    // The sum over another axis is a term as they are.
    if (node.op->name == ops::kAllReduce && std::all_of(inputs.begin(), inputs.end(), is_term)) {
      const std::vector<ValueId> sums = rebuild.add_like(node, std::move(inputs));
      terms.insert(sums.begin(), sums.end());
      return;
    }
    if (node.op->name != "add_n") {
      for (ValueId& id : inputs)
        if (is_term(id)) id = sum_of_terms(rebuild, id, node);
      rebuild.add_like(node, std::move(inputs));
      return;
    }
    const auto rest = std::stable_partition(inputs.begin(), inputs.end(), is_term);
    std::vector<ValueId> own(rest, inputs.end());
    inputs.erase(rest, inputs.end());
    const std::string label = rebuild.old().value(node.outputs.front()).name;
    ValueId sum = rebuild.add("add_n", inputs, {}, label + ".part", node).front();
    sum = sum_of_terms(rebuild, sum, node);
    if (own.empty()) {
      rebuild.map(node.outputs.front(), sum);
      return;
    }
    own.insert(own.begin(), sum);
    rebuild.add_like(node, std::move(own));
  }

  ValueId sum_of_terms(Rebuild& rebuild, ValueId term, const Node& node) const {
    ir::Attributes attributes = over_axis();
    attributes.set("reduce", std::string("sum"));
    const std::string label = rebuild.old().value(node.outputs.front()).name + "." + options_.axis;
    return rebuild.add(std::string(ops::kAllReduce), {term}, attributes, label, node).front();
  }

  void update(Rebuild& rebuild, const Node& node, std::vector<ValueId> inputs) const {
    for (ValueId& id : inputs) {
      const ValueId part = part_of_state(rebuild, id, node);
      id = part != id ? part : part_of_sum(rebuild, id, node);
    }
    rebuild.add_like(node, std::move(inputs));
  }

  // The own part of a sum that each rank has whole.
  ValueId part_of_sum(Rebuild& rebuild, ValueId id, const Node& node) const {
    if (!options_.whole_sums || id == kNone || state_read(rebuild.fresh(), id) != kNone) return id;
    const ir::ValueInfo value = rebuild.fresh().value(id);
    if (value.type.shape.rank() == 0) return id;
    ValueId rows = viewed(rebuild, id, value.type.shape.as_rows(), node);
    // The last parts reach beyond the end.
    const std::int64_t all = part_of(value.type.shape)[0] * parts_;
    if (rebuild.fresh().type(rows).shape[0] != all)
      rows = rebuild
                 .add("slice_grad", {rows}, {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}, {"extent", all}},
                      value.name + ".padded", node)
                 .front();
    return rebuild.add(std::string(ops::kOwnRows), {rows}, over_axis(), value.name + ".part", node).front();
  }

  // The own part of a state that is kept whole; other values stay as they are.
  ValueId part_of_state(Rebuild& rebuild, ValueId id, const Node& node) const {
    const StateId read = id == kNone ? kNone : state_read(rebuild.fresh(), id);
    if (read == kNone || is_cut(read) || gradients_.contains(read) || !has_rows(module_.state(read))) return id;
    const State& state = module_.state(read);
    return rebuild
        .add(std::string(ops::kOwnRows), {viewed(rebuild, id, state.type.shape.as_rows(), node)}, over_axis(),
             state.name + ".part", node)
        .front();
  }

  // Element by element from states to states: each rank does its part.
  void rebuild_parts(const std::string& graph) {
    Rebuild rebuild(module_, graph);
    for (const Node& node : rebuild.old().nodes) {
      std::vector<ValueId> inputs = rebuild.mapped(node.inputs);
      for (ValueId& id : inputs) id = part_of_state(rebuild, id, node);
      rebuild.add_like(node, std::move(inputs));
    }
    finish(rebuild);
  }

  // What is written to a state that is kept whole is gathered.
  void finish(Rebuild& rebuild) const {
    const ir::Graph& old = rebuild.old();
    std::vector<ir::Write> writes;
    for (const ir::Write& write : old.writes) {
      const State& state = module_.state(write.state);
      // The sum that took the place of its terms, where parts do now.
      if (gradients_.contains(write.state) && write.mode == ir::Write::Mode::set) continue;
      ValueId value = rebuild.mapped(write.value);
      if (const auto part = scattered_.find(value); part != scattered_.end() && is_cut(write.state))
        value = part->second;
      if (rebuild.fresh().type(value).shape != state.type.shape)
        value = gather(rebuild, value, state.type.shape, state.name, old.nodes.back());
      writes.push_back({write.state, value, write.mode});
    }
    rebuild.finish();
    module_.graph(old.name).writes = std::move(writes);
  }

  // Start values of parts, and derived copies.
  void rebuild_start(const std::string& graph) {
    Rebuild rebuild(module_, graph);
    const ir::Graph& old = rebuild.old();
    ValueId place = kNone;
    std::map<ValueId, StateId> made_for;
    for (const ir::Write& write : old.writes)
      if (is_cut(write.state)) made_for.emplace(write.value, write.state);
    for (const Node& node : old.nodes) {
      const auto cut = made_for.find(node.outputs.front());
      if (node.op->name != "random_init" || cut == made_for.end()) {
        rebuild.add_like(node, rebuild.mapped(node.inputs));
        continue;
      }
      const State& state = module_.state(cut->second);
      if (place == kNone) place = rebuild.fresh().find_or_add_input(place_input(options_.axis), {DType::i64, {}});
      std::vector<ValueId> inputs = rebuild.mapped(node.inputs);
      inputs.push_back(place);
      rebuild.add_like(node, std::move(inputs),
                       ops::in_shard(node.attributes, state.whole, state.block, state.type.shape,
                                     std::array{ops::Shift{ops::Shift::kRows, state.type.shape[0]}}));
    }
    finish(rebuild);
  }

  // Stages send each other what they store of a gradient.
  void rebuild_ties() {
    Rebuild rebuild(module_, kTies);
    for (const Node& node : rebuild.old().nodes) {
      ir::Attributes changed;
      if (node.op->name == ops::kReceive) {
        const Shape& shape = module_.state(module_.find_state(node.attributes.text("of"))).type.shape;
        changed.set("shape", std::vector<std::int64_t>(shape.begin(), shape.end()));
      }
      rebuild.add_like(node, rebuild.mapped(node.inputs), changed);
    }
    rebuild.finish();
  }

  // Micro-batches, evaluation, prediction: weights are gathered for use, gradients scattered.
  void rebuild_use(const std::string& graph) {
    Rebuild rebuild(module_, graph);
    const ir::Graph& old = rebuild.old();
    std::set<ValueId> contributions;
    for (const ir::Write& write : old.writes)
      if (gradients_.contains(write.state) && is_cut(write.state)) contributions.insert(write.value);
    std::map<std::pair<StateId, bool>, ValueId> gathered;  // by state and direction
    scattered_.clear();
    for (const Node& node : old.nodes) {
      std::vector<ValueId> inputs = node.inputs;
      for (ValueId& id : inputs) {
        if (id == kNone) continue;
        const StateId state = state_read(old, id);
        if (state == kNone || !is_cut(state)) {
          id = rebuild.mapped(id);
          continue;
        }
        ValueId& whole = gathered.try_emplace({state, node.phase == Phase::forward}, kNone).first->second;
        if (whole == kNone)
          whole = gather(rebuild, rebuild.mapped(id), module_.state(state).block, module_.state(state).name, node);
        id = whole;
      }
      rebuild.add_like(node, std::move(inputs));
      for (const ValueId id : node.outputs)
        if (contributions.contains(id)) {
          const ValueId whole = rebuild.mapped(id);
          scattered_[whole] = scatter(rebuild, whole, old.value(id).name, node);
        }
    }
    finish(rebuild);
    scattered_.clear();
  }

  Module& module_;
  const Zero::Options& options_;
  int parts_;
  std::set<StateId> parameters_;
  std::set<StateId> gradients_;
  std::set<ValueId> parts_of_sums_;       // of the update being rebuilt
  std::map<ValueId, ValueId> scattered_;  // of the graph being rebuilt: a contribution and its part
};

}  // namespace

void Zero::run(Module& module) const {
  if (module.mesh.size_of(options_.axis) > 1) StateCutter(module, options_).run();
}

}  // namespace trireme::passes
