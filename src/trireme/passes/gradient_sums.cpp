#include "trireme/passes/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/passes/autodiff.h"

namespace trireme::passes {

using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;
using Axes = std::vector<std::string>;

namespace {

// Of an optimizer's op, whose first operands are the parameter and its gradient.
std::optional<std::size_t> clip_operand(const ir::OpDef& op) {
  const auto clip =
      std::find_if(op.operands.begin(), op.operands.end(), [](const auto& operand) { return operand.name == "clip"; });
  if (clip == op.operands.end()) return std::nullopt;
  return static_cast<std::size_t>(clip - op.operands.begin());
}

}  // namespace

GradientSums::GradientSums(ir::Module& module, const std::string& graph, const std::string& axis, bool stages_apart)
    : module_(module),
      axis_(axis),
      stages_apart_(stages_apart),
      parts_(module.mesh.size_of(axis)),
      rebuild_(module, graph) {
  const ir::Graph& old = rebuild_.old();
  std::map<ValueId, StateId> summed;  // gradients, as they are and after sums over other axes
  for (const Node& node : old.nodes) {
    if (node.op->name == "clip_scale") {
      clip_ = node;
      if (node.inputs[2] != kNone) unit_ = rebuild_.mapped(node.inputs[2]);
    }
    if (node.op->name != ops::kAllReduce) continue;
    const ValueId term = node.inputs.front();
    const ir::ValueInfo& value = old.value(term);
    if (value.kind == ir::ValueInfo::Kind::state) summed[term] = value.state;
    const auto gradient = summed.find(term);
    if (gradient == summed.end()) continue;
    if (node.attributes.text("axis") != axis) {
      // Its sum over other axes comes before.
      summed[node.outputs.front()] = gradient->second;
      rebuild_.add_like(node, rebuild_.mapped(node.inputs));
      replace(node, [] {});
      continue;
    }
    for (const ir::State& state : module.states)
      if (state.trained && module.state(gradient->second).name == gradient_name(state.name))
        sums_.push_back({state.name, node, value.type, rebuild_.mapped(term)});
  }
  other_axes_ = sharding_axes(module.mesh, axis);
  if (clip_.op == nullptr) fail("the update does not look at the gradients' norm");
  find_ready();
}

void GradientSums::find_ready() {
  const ir::Graph& old = rebuild_.old();
  std::set<std::string> summed;
  for (const Sum& sum : sums_) summed.insert(sum.parameter);
  for (const ir::State& state : module_.states) {
    const StateId gradient = state.trained ? module_.find_state(gradient_name(state.name)) : kNone;
    if (gradient == kNone || summed.contains(state.name)) continue;
    for (const Node& node : old.nodes)
      if (clip_operand(*node.op) && old.value(node.inputs.front()).state == module_.find_state(state.name))
        ready_.push_back({state.name, node, rebuild_.mapped(node.inputs[1]), is_sharded_over(state, axis_)});
  }
}

std::vector<ValueId> GradientSums::add(const char* op, std::vector<ValueId> inputs, ir::Attributes attributes,
                                       const std::string& label) {
  return rebuild_.add(op, std::move(inputs), std::move(attributes), label, clip_);
}

ValueId GradientSums::all_reduce(ValueId value, const std::string& label) {
  return rebuild_
      .add(std::string(ops::kAllReduce), {value},
           {{"axis", axis_}, {"parts", static_cast<std::int64_t>(parts_)}, {"reduce", std::string("sum")}}, label,
           clip_)
      .front();
}

ValueId GradientSums::all_gather(ValueId value, const std::string& label) {
  const std::int64_t rows = rebuild_.fresh().type(value).shape[0] * parts_;
  return rebuild_
      .add(std::string(ops::kAllGather), {value},
           {{"axis", axis_}, {"parts", static_cast<std::int64_t>(parts_)}, {"rows", std::vector<std::int64_t>{rows}}},
           label, clip_)
      .front();
}

ValueId GradientSums::all_to_all(ValueId value, const std::string& label) {
  return rebuild_
      .add(std::string(ops::kAllToAll), {value}, {{"axis", axis_}, {"parts", static_cast<std::int64_t>(parts_)}}, label,
           clip_)
      .front();
}

StateId GradientSums::add_state(ir::State state) {
  state.category = ir::Category::optimizer;
  ir::Graph& init = module_.graph("init");
  const auto seed = init.find_input("seed");
  TRI_CHECK(seed.has_value(), "start values have no seed");
  const bool normal = state.init.kind == ir::Init::Kind::normal;
  const ValueId start = init.add(module_.registry->at("random_init"), {*seed},
                                 {{"kind", std::string(normal ? "normal" : "zeros")},
                                  {"a", state.init.a},
                                  {"site", static_cast<std::int64_t>(site_of(state.name))},
                                  {"shape", dims(state.type.shape)},
                                  {"dtype", std::string(name_of(state.type.dtype))}},
                                 state.name + ".init", ir::Phase::forward)
                            .front();
  const StateId id = module_.add_state(std::move(state));
  init.writes.push_back({id, start, ir::Write::Mode::set});
  return id;
}

ValueId GradientSums::state_value(ir::State state) {
  StateId id = module_.find_state(state.name);
  if (id == kNone) id = add_state(std::move(state));
  return rebuild_.fresh().read(module_, id);
}

bool is_sharded_over(const ir::State& state, const std::string& axis) {
  return std::any_of(state.sharding.dims.begin(), state.sharding.dims.end(),
                     [&](const Axes& axes) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); });
}

std::set<std::string> parameters_summed_over(const ir::Module& module, const ir::Graph& graph,
                                             const std::string& axis) {
  std::set<std::string> names;
  std::map<ValueId, StateId> gradients;  // as they are and after sums over other axes
  for (const Node& node : graph.nodes) {
    if (node.op->name != ops::kAllReduce) continue;
    const ir::ValueInfo& term = graph.value(node.inputs.front());
    if (term.kind == ir::ValueInfo::Kind::state) gradients[node.inputs.front()] = term.state;
    const auto gradient = gradients.find(node.inputs.front());
    if (gradient == gradients.end()) continue;
    gradients[node.outputs.front()] = gradient->second;
    if (node.attributes.text("axis") != axis) continue;
    for (const ir::State& state : module.states)
      if (state.trained && module.state(gradient->second).name == gradient_name(state.name)) names.insert(state.name);
  }
  return names;
}

std::vector<std::string> sharding_axes(const ir::Mesh& mesh, const std::string& axis) {
  std::vector<std::string> axes;
  for (const ir::Mesh::Axis& other : mesh.axes)
    if (other.size > 1 && other.name != axis && other.name != ir::kPipelineAxis) axes.push_back(other.name);
  return axes;
}

ValueId GradientSums::sum_over(const std::string& axes, ValueId value, const std::string& label) {
  return add(ops::kAllReduce.data(), {value},
             {{"axis", axes}, {"parts", static_cast<std::int64_t>(module_.mesh.size_of(axes))}}, label)
      .front();
}

std::int64_t GradientSums::other_ranks() const {
  std::int64_t ranks = 1;
  for (const std::string& axis : other_axes_) ranks *= module_.mesh.size_of(axis);
  return ranks;
}

ValueId GradientSums::own_state(const std::string& name, std::int64_t elements) {
  ir::State state;
  state.name = name;
  state.type = {DType::f32, {1, elements}};
  state.whole = {parts_, elements * other_ranks()};
  state.sharding.dims = {{axis_}, other_axes_};
  return state_value(std::move(state));
}

ValueId GradientSums::shared_state(const std::string& name, const TensorType& type, const ir::Init& init) {
  ir::State state;
  state.name = name;
  state.type = type;
  state.init = init;
  if (!other_axes_.empty()) {
    state.whole = type.shape;
    state.whole[0] *= other_ranks();
    state.sharding.dims.assign(static_cast<std::size_t>(type.shape.rank()), {});
    state.sharding.dims.front() = other_axes_;
  }
  return state_value(std::move(state));
}

void GradientSums::keep(ValueId state, ValueId fresh) { kept_.emplace_back(state, fresh); }

void GradientSums::set(const Sum& sum, ValueId value) {
  replace(sum.node, [this, old = sum.node.outputs.front(), value] { rebuild_.map(old, value); });
}

void GradientSums::replace(const Node& node, std::function<void()> by) {
  replaced_[node.outputs.front()] = std::move(by);
}

ValueId GradientSums::local_clip() {
  const double limit = clip_.attributes.real("max_norm");
  if (limit == 0 && unit_ == kNone) return kNone;
  if (local_clip_ != kNone) return local_clip_;
  // Squares of shards are summed over the ranks that have the others.
  std::map<std::string, std::vector<ValueId>> squares;  // by the other axes that shard them
  const auto add_square = [&](const std::string& parameter, ValueId own, int on_ranks) {
    Axes sharded;
    for (const Axes& axes : module_.state(module_.find_state(parameter)).sharding.dims)
      std::copy_if(axes.begin(), axes.end(), std::back_inserter(sharded),
                   [&](const std::string& axis) { return axis != axis_; });
    const ValueId square = add("sum_squares", {own}, {}, parameter + ".own").front();
    squares[fmt::format("{}", fmt::join(sharded, "+"))].push_back(
        on_ranks == 1 ? square : scaled(square, 1.0 / on_ranks, parameter + ".own.share"));
  };
  std::set<ValueId> counted;  // in the norm of all gradients: of what several stages have, one stage's
  for (const Node& node : rebuild_.old().nodes)
    if (node.op->name == "sum_squares") counted.insert(node.inputs.front());
  for (const Sum& sum : sums_)
    if (counted.contains(sum.node.outputs.front())) add_square(sum.parameter, sum.own, 1);
  for (const Ready& ready : ready_)
    if (counted.contains(ready.update.inputs[1])) add_square(ready.parameter, ready.own, ready.sharded ? 1 : parts_);
  std::vector<ValueId> totals;
  for (const auto& [axes, terms] : squares) {
    const ValueId sum = add("add_n", terms, {}, "own_square").front();
    totals.push_back(axes.empty() ? sum : sum_over(axes, sum, "own_square"));
  }
  if (totals.empty()) totals.push_back(add("fill", {}, {{"value", 0.0}, {"shape", dims({})}}, "own_square").front());
  ValueId total = totals.size() == 1 ? totals.front() : add("add_n", totals, {}, "own_square").front();
  // A stage may have sums over other axes before, and another none: this one has a name of its own on all of them.
  if (!stages_apart_ && module_.mesh.size_of(ir::kPipelineAxis) > 1)
    total = sum_over(ir::kPipelineAxis, total, "own_square.stages");
  // Of a pipeline's stages the last one knows the loss; this clip looks at the gradients alone.
  const StateId known = module_.find_state("loss");
  const ValueId loss = known != kNone ? rebuild_.fresh().read(module_, known)
                                      : add("fill", {}, {{"value", 0.0}, {"shape", dims({})}}, "own_loss").front();
  local_clip_ = add("clip_scale", {total, loss, unit_}, {{"max_norm", limit / std::sqrt(static_cast<double>(parts_))}},
                    "own_clip")[1];
  return local_clip_;
}

const Node& GradientSums::update_of(const std::string& parameter) const {
  const StateId id = module_.find_state(parameter);
  const ir::Graph& old = rebuild_.old();
  for (const ir::Write& write : old.writes)
    if (write.state == id)
      for (const Node& node : old.nodes)
        if (std::find(node.outputs.begin(), node.outputs.end(), write.value) != node.outputs.end()) return node;
  fail("parameter '{}' is never updated", parameter);
}

ValueId GradientSums::kept_of(const std::string& parameter) const {
  const Node& node = update_of(parameter);
  const std::size_t last = node.op->operands.size() - 1;
  if (node.op->operands[last].name != "keep" || node.inputs.size() <= last) return kNone;
  return rebuild_.mapped(node.inputs[last]);
}

ValueId GradientSums::masked(const std::string& parameter, ValueId value) {
  ValueId keep = kept_of(parameter);
  if (keep == kNone) return value;
  const Shape shape = rebuild_.fresh().type(value).shape;
  if (rebuild_.fresh().type(keep).shape != shape)
    keep = add("reshape", {keep}, {{"shape", dims(shape)}}, parameter + ".keep").front();
  const ir::ValueInfo& info = rebuild_.fresh().value(value);
  const std::string label = info.kind == ir::ValueInfo::Kind::state ? info.name.substr(1) : info.name;
  return add("mul", {value, keep}, {}, label + ".masked").front();
}

ValueId GradientSums::scaled(ValueId scalar, double by, const std::string& label) {
  return add("weighted_sum", {kNone, scalar, kNone, kNone}, {{"b_weight", by}, {"shape", dims({})}}, label).front();
}

void GradientSums::scale_ready() {
  if (clips_ || ready_.empty() || local_clip() == kNone) return;
  const ValueId mean = scaled(all_reduce(local_clip_, "own_clip.sum"), 1.0 / parts_, "own_clip.mean");
  std::set<ValueId> gradients;
  for (const Ready& ready : ready_) {
    gradients.insert(ready.update.inputs[1]);
    replace(ready.update, [this, node = ready.update, mean] {
      std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
      inputs[*clip_operand(*node.op)] = mean;
      rebuild_.add_like(node, std::move(inputs));
    });
  }
  // The norm is that of what the parameters follow, without the loss scale.
  for (const Node& node : rebuild_.old().nodes)
    if (node.op->name == "sum_squares" && gradients.contains(node.inputs.front()))
      replace(node, [this, node, mean] {
        const ValueId square = rebuild_.add_like(node, rebuild_.mapped(node.inputs)).front();
        const std::string label = rebuild_.fresh().value(square).name;
        rebuild_.map(node.outputs.front(),
                     add("mul", {add("mul", {square, mean}, {}, label).front(), mean}, {}, label).front());
      });
}

void GradientSums::finish() {
  scale_ready();
  for (const Node& node : rebuild_.old().nodes) {
    if (const auto by = replaced_.find(node.outputs.front()); by != replaced_.end()) {
      by->second();
    } else if (!clips_ && node.op->name == "clip_scale") {
      std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
      inputs[2] = kNone;
      rebuild_.add_like(node, std::move(inputs), {{"max_norm", 0.0}});
    } else {
      rebuild_.add_like(node, rebuild_.mapped(node.inputs));
    }
  }
  const ValueId finite = rebuild_.mapped(clip_.outputs[2]);
  std::vector<ir::Write> writes;
  for (const auto& [state, fresh] : kept_) {
    const StateId id = rebuild_.fresh().value(state).state;
    const std::string label = module_.state(id).name + ".kept";
    writes.push_back({id, add("select", {finite, fresh, state}, {}, label).front(), ir::Write::Mode::set});
  }
  const std::string graph = rebuild_.old().name;
  rebuild_.finish();
  ir::Graph& update = module_.graph(graph);
  // A sum may be of another dtype than its terms were: then it does not take their place.
  std::erase_if(update.writes, [&](const ir::Write& write) {
    const ir::State& state = module_.state(write.state);
    return state.category == ir::Category::gradients && update.type(write.value).dtype != state.type.dtype;
  });
  update.writes.insert(update.writes.end(), writes.begin(), writes.end());
}

}  // namespace trireme::passes
