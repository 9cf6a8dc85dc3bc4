#include "trireme/passes/prune.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Module;
using ir::Node;
using ir::Phase;
using ir::StateId;
using ir::ValueId;

constexpr std::string_view kMaskSuffix = "/mask";

std::vector<std::int64_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

// All dimensions of a shape but one.
std::vector<std::int64_t> dims_but(int rank, int dim) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < rank; ++i)
    if (i != dim) dims.push_back(i);
  return dims;
}

class Pruner {
 public:
  Pruner(Module& module, const Prune::Options& options) : module_(module), options_(options) {}

  void run() {
    graph_.name = kPrune;
    const StateId count = add_state("prune/count", {DType::f32, {}}, ir::Category::scalars, {});
    const ValueId counted = add("add", {graph_.read(module_, count), fill(1)}, {}, "prune.count");
    set(count, counted);
    fraction_ =
        add("ramp", {counted}, {{"kind", options_.ramp}, {"to", options_.sparsity}, {"steps", options_.prunings}},
            "prune.fraction");
    for (const std::string& parameter : options_.parameters) prune_elements(parameter);
    for (const Prune::Group& group : options_.groups) prune_slices(group);
    for (const auto& [parameter, parts] : slice_masks_) {
      ValueId mask = parts.front();
      for (std::size_t i = 1; i < parts.size(); ++i) mask = add("mul", {mask, parts[i]}, {}, parameter + ".kept");
      set_mask(masks_.at(parameter), mask, parameter);
    }
    if (masks_.empty()) fail("there is nothing to prune");
    module_.graphs.push_back(std::move(graph_));
    mask_update();
    if (options_.rewind) add_rewinding();
  }

 private:
  StateId add_state(const std::string& name, const TensorType& type, ir::Category category, const ir::Init& init) {
    ir::State state;
    state.name = name;
    state.type = type;
    state.category = category;
    state.init = init;
    return module_.add_state(state);
  }

  StateId parameter_of(const std::string& name) const {
    const StateId id = module_.find_state(name);
    if (id == kNone || !module_.state(id).trained) fail("'{}' is to be pruned, and there is no such parameter", name);
    return id;
  }

  ValueId add(const char* op, std::vector<ValueId> inputs, ir::Attributes attributes, const std::string& name) {
    return add_to(graph_, op, std::move(inputs), std::move(attributes), name);
  }
  ValueId add_to(Graph& graph, const char* op, std::vector<ValueId> inputs, ir::Attributes attributes,
                 const std::string& name) const {
    return graph.add(module_.registry->at(op), std::move(inputs), std::move(attributes), name, Phase::update).front();
  }
  ValueId fill(double value) { return add("fill", {}, {{"value", value}}, "prune.one"); }
  void set(StateId state, ValueId value) { graph_.writes.push_back({state, value, ir::Write::Mode::set}); }

  StateId mask_of(const std::string& parameter) {
    const auto [known, fresh] = masks_.try_emplace(parameter, kNone);
    if (!fresh) fail("'{}' is to be pruned twice", parameter);
    known->second = add_state(mask_name(parameter), module_.state(parameter_of(parameter)).type,
                              ir::Category::optimizer, ir::Init::constant(1));
    module_.state(known->second).sparse = true;
    return known->second;
  }

  // A mean of the gradients: the optimizer's first state.
  ValueId momentum_of(const std::string& parameter) {
    for (const char* suffix : {"/m", "/momentum"})
      if (const StateId id = module_.find_state(parameter + suffix); id != kNone) return graph_.read(module_, id);
    fail("'{}' has no momentum", parameter);
  }

  // −w·m
  ValueId push(const std::string& parameter) {
    const ValueId product =
        add("mul", {graph_.read(module_, parameter_of(parameter)), momentum_of(parameter)}, {}, parameter + ".push");
    return add("scale", {product}, {{"factor", -1.0}}, parameter + ".push");
  }

  // The state of a score that outlives a pruning, and its new contents: what it has, and `more` (kNone: nothing).
  ValueId kept_score(const std::string& name, const TensorType& type, ValueId more,
                     ir::Category category = ir::Category::optimizer) {
    const bool random = options_.score == Prune::Score::random;
    const StateId id = add_state(name + "/score", type, category, random ? ir::Init::uniform(1) : ir::Init{});
    const ValueId before = graph_.read(module_, id);
    if (more == kNone) return before;
    const ValueId sum = add("add", {before, more}, {}, name + ".score");
    set(id, sum);
    return sum;
  }

  ValueId kept_of(ValueId scores, ValueId among, bool magnitude, const std::string& name) {
    std::vector<ValueId> inputs = {scores, among, options_.of > 0 ? kNone : fraction_};
    return add("keep_largest", inputs, {{"magnitude", magnitude}, {"keep", options_.keep}, {"of", options_.of}},
               name + ".kept");
  }

  // What becomes a state is made by an op that can be done in pieces.
  void set_mask(StateId mask, ValueId kept, const std::string& name) {
    set(mask, add("scale", {kept}, {{"factor", 1.0}}, name + ".mask"));
  }

  void prune_elements(const std::string& parameter) {
    const StateId mask = mask_of(parameter);
    const ValueId w = graph_.read(module_, parameter_of(parameter));
    ValueId scores = w;
    if (options_.score == Prune::Score::random) scores = kept_score(parameter, graph_.type(w), kNone);
    if (options_.score == Prune::Score::movement) scores = kept_score(parameter, graph_.type(w), push(parameter));
    const bool magnitude = options_.score == Prune::Score::magnitude;
    set_mask(mask, kept_of(scores, graph_.read(module_, mask), magnitude, parameter), parameter);
  }

  // What a member's slices have of the score: its elements' squares or pushes, added up.
  ValueId slice_terms(const Prune::Member& member, std::int64_t slices) {
    const ValueId w = graph_.read(module_, parameter_of(member.parameter));
    const ValueId terms = options_.score == Prune::Score::movement
                              ? push(member.parameter)
                              : add("mul", {w, w}, {}, member.parameter + ".square");
    const Shape shape = graph_.type(w).shape;
    TRI_CHECK(member.dim < shape.rank() && shape[member.dim] == slices * member.repeat,
              "'{}' has no {} slices along {}", member.parameter, slices, member.dim);
    ValueId sums = terms;
    if (shape.rank() > 1)
      sums = add("reduce", {terms}, {{"dims", dims_but(shape.rank(), member.dim)}}, member.parameter + ".slices");
    if (member.repeat == 1) return sums;
    sums = add("reshape", {sums}, {{"shape", std::vector<std::int64_t>{slices, member.repeat}}},
               member.parameter + ".slices");
    return add("reduce", {sums}, {{"dims", std::vector<std::int64_t>{1}}}, member.parameter + ".slices");
  }

  void prune_slices(const Prune::Group& group) {
    const std::string& name = group.members.front().parameter;
    const TensorType type{DType::f32, {group.slices}};
    const StateId kept_state = add_state(name + "/slices", type, ir::Category::scalars, ir::Init::constant(1));
    ValueId scores = kNone;
    if (options_.score != Prune::Score::random) {
      std::vector<ValueId> terms;
      for (const Prune::Member& member : group.members) terms.push_back(slice_terms(member, group.slices));
      scores = add("add_n", terms, {}, name + ".slices");
    }
    if (options_.score != Prune::Score::magnitude) scores = kept_score(name, type, scores, ir::Category::scalars);
    const ValueId kept = kept_of(scores, graph_.read(module_, kept_state), false, name);
    set_mask(kept_state, kept, name + ".slices");
    for (const Prune::Member& member : group.members) spread(kept, member, group.slices);
  }

  // What the mask of its slices is for a member. Several groups may have a part in its own.
  void spread(ValueId kept, const Prune::Member& member, std::int64_t slices) {
    if (!slice_masks_.contains(member.parameter)) mask_of(member.parameter);
    const Shape shape = module_.state(masks_.at(member.parameter)).type.shape;
    if (member.repeat > 1) {
      kept = add("broadcast", {kept},
                 {{"shape", std::vector<std::int64_t>{slices, member.repeat}}, {"dims", std::vector<std::int64_t>{1}}},
                 member.parameter + ".kept");
      kept = add("reshape", {kept}, {{"shape", std::vector<std::int64_t>{slices * member.repeat}}},
                 member.parameter + ".kept");
    }
    if (shape.rank() > 1)
      kept = add("broadcast", {kept}, {{"shape", dims_of(shape)}, {"dims", dims_but(shape.rank(), member.dim)}},
                 member.parameter + ".kept");
    slice_masks_[member.parameter].push_back(kept);
  }

  void mask_update() {
    Graph& update = module_.graph("update");
    for (const auto& [parameter, mask] : masks_) {
      const StateId id = parameter_of(parameter);
      const auto write =
          std::find_if(update.writes.begin(), update.writes.end(), [&](const ir::Write& w) { return w.state == id; });
      TRI_CHECK(write != update.writes.end(), "'{}' is never updated", parameter);
      const auto node = std::find_if(update.nodes.begin(), update.nodes.end(), [&](const Node& n) {
        return std::find(n.outputs.begin(), n.outputs.end(), write->value) != n.outputs.end();
      });
      if (node->op->operands.back().name != "keep") fail("{} does not keep what is pruned at zero", node->op->name);
      node->inputs.resize(node->op->operands.size(), kNone);
      node->inputs.back() = update.read(module_, mask);
      // The parameter and what the optimizer keeps of it.
      for (const ir::Write& w : update.writes)
        if (std::find(node->outputs.begin(), node->outputs.end(), w.value) != node->outputs.end())
          module_.state(w.state).sparse = true;
    }
  }

  // All parameters come back, those without a mask too, and the optimizer begins anew.
  void add_rewinding() {
    Graph remember, rewind;
    remember.name = kRemember;
    rewind.name = kRewind;
    const std::size_t known = module_.states.size();
    const auto write = [&](Graph& graph, StateId state, ValueId value) {
      graph.writes.push_back({state, value, ir::Write::Mode::set});
    };
    for (std::size_t s = 0; s < known; ++s) {
      const ir::State state = module_.states[s];
      const auto id = static_cast<StateId>(s);
      if (!state.trained) continue;
      const StateId then = add_state(state.name + "/rewind", state.type, ir::Category::optimizer, {});
      write(remember, then,
            add_to(remember, "scale", {remember.read(module_, id)}, {{"factor", 1.0}}, state.name + ".now"));
      ValueId back = rewind.read(module_, then);
      const auto mask = masks_.find(state.name);
      back = mask == masks_.end()
                 ? add_to(rewind, "scale", {back}, {{"factor", 1.0}}, state.name + ".then")
                 : add_to(rewind, "mul", {back, rewind.read(module_, mask->second)}, {}, state.name + ".then");
      write(rewind, id, back);
      for (std::size_t other = 0; other < known; ++other) {
        const ir::State& o = module_.states[other];
        const auto other_id = static_cast<StateId>(other);
        if (o.derived_from == state.name)
          write(rewind, other_id,
                add_to(rewind, "cast", {back}, {{"to", std::string(name_of(o.type.dtype))}}, o.name + ".then"));
        for (const char* suffix : {"/m", "/v", "/momentum"})
          if (o.name == state.name + suffix)
            write(rewind, other_id,
                  add_to(rewind, "scale", {rewind.read(module_, other_id)}, {{"factor", 0.0}}, o.name + ".then"));
      }
    }
    module_.graphs.push_back(std::move(remember));
    module_.graphs.push_back(std::move(rewind));
  }

  Module& module_;
  const Prune::Options& options_;
  Graph graph_;
  ValueId fraction_ = kNone;
  std::map<std::string, StateId> masks_;                     // by parameter
  std::map<std::string, std::vector<ValueId>> slice_masks_;  // by parameter: of the groups that it is a member of
};

}  // namespace

std::string mask_name(const std::string& parameter) { return parameter + std::string(kMaskSuffix); }

std::optional<std::string> masked_parameter(const std::string& state) {
  if (!state.ends_with(kMaskSuffix)) return std::nullopt;
  return state.substr(0, state.size() - kMaskSuffix.size());
}

void Prune::run(Module& module) const { Pruner(module, options_).run(); }

}  // namespace trireme::passes
