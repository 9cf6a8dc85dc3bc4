#include "trireme/passes/shard.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/passes/node_cut.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::Sharding;
using ir::StateId;
using ir::ValueId;

class GraphCutter {
 public:
  GraphCutter(ir::Module& module, const std::string& graph, const std::vector<Shard::Seed>& seeds)
      : module_(module), rebuild_(module, graph) {
    for (const ValueId id : rebuild_.old().inputs)
      for (const Shard::Seed& seed : seeds)
        if (rebuild_.old().value(id).name == seed.input) cut_input(id, seed.axis);
  }

  void run() {
    for (const Node& node : rebuild_.old().nodes) cut(node);
    for (const ir::Write& write : rebuild_.old().writes) settle(write);
    for (const ir::Output& output : rebuild_.old().outputs)
      rebuild_.map(output.value, whole(rebuild_.mapped(output.value)));
    rebuild_.finish();
    ir::Graph& g = module_.graph(rebuild_.old().name);
    for (const auto& [state, value] : in_place_) g.writes.push_back({state, value, ir::Write::Mode::set});
  }

 private:
  ir::Graph& fresh() { return rebuild_.fresh(); }
  const Sharding& sharding(ValueId id) { return fresh().value(id).sharding; }

  void cut_input(ValueId id, const std::string& axis) {
    const TensorType& type = rebuild_.old().type(id);
    ir::ValueInfo& value = fresh().value(rebuild_.mapped(id));
    value.sharding.dims.assign(static_cast<std::size_t>(type.shape.rank()), {});
    value.sharding.dims.at(0) = {axis};
    value.type = local_type(type, value.sharding, module_.mesh, value.name);
  }

  // What leaves the graph is no term of a sum.
  ValueId whole(ValueId id) {
    if (sharding(id).partial.empty()) return id;
    TRI_CHECK(!rebuild_.old().nodes.empty(), "graph '{}' has no nodes", rebuild_.old().name);
    return resolved(id, rebuild_.old().nodes.back());
  }

  void cut(const Node& node) {
    const ir::Graph& old = rebuild_.old();
    std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
    std::vector<Sharding> operands;
    operands.reserve(inputs.size());
    for (const ValueId id : inputs) operands.push_back(id == kNone ? Sharding{} : sharding(id));
    const NodeCut plan = cut_node(node, old.input_types(node), old.output_types(node), operands);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] != kNone) inputs[i] = as(inputs[i], plan.inputs[i], node);
    if (plan.whole_axis.empty())
      add(node, std::move(inputs), plan);
    else
      partition(node, std::move(inputs), plan);
  }

  void add(const Node& node, std::vector<ValueId> inputs, const NodeCut& plan) {
    const ir::Graph& old = rebuild_.old();
    ir::Types local;
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      local.push_back(
          local_type(old.type(node.outputs[i]), plan.outputs[i], module_.mesh, old.value(node.outputs[i]).name));
    // An attribute of this name is the shape of the output.
    ir::Attributes changed;
    if (node.attributes.find("shape") != nullptr)
      changed.set("shape", std::vector<std::int64_t>(local[0].shape.begin(), local[0].shape.end()));
    const std::vector<ValueId> outputs = rebuild_.add_like(node, std::move(inputs), changed);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      ir::ValueInfo& value = fresh().value(outputs[i]);
      if (value.type != local[i])
        fail("{} '{}' cannot be cut as {}: a part would be {}, the op makes {}", node.op->name, value.name,
             plan.outputs[i].str(), local[i].str(), value.type.str());
      value.sharding = plan.outputs[i];
    }
  }

  // The value as a node takes it.
  ValueId as(ValueId id, const Sharding& wanted, const Node& user) {
    if (sharding(id) == wanted) return id;
    if (!sharding(id).partial.empty() && wanted.partial.empty()) id = resolved(id, user);
    if (sharding(id) == wanted) return id;
    fail("{} '{}' needs '{}' as '{}', and it is '{}': there is no way from one to the other", user.op->name,
         rebuild_.old().value(user.outputs.front()).name, fresh().value(id).name, wanted.str(), sharding(id).str());
  }

  // The sum of the terms that the ranks hold.
  ValueId resolved(ValueId id, const Node& user) {
    if (sharding(id).partial.empty()) return id;
    const auto known = resolved_.find(id);
    if (known != resolved_.end()) return known->second;
    const ir::ValueInfo value = fresh().value(id);
    ValueId sum = id;
    Sharding left = value.sharding;
    for (const Sharding::Partial& partial : value.sharding.partial) {
      const std::string label = value.kind == ir::ValueInfo::Kind::state ? value.name.substr(1) : value.name;
      sum = all_reduce(sum, partial.axis, partial.reduce == Sharding::Reduce::max ? "max" : "sum", label, user);
      left.partial.erase(left.partial.begin());
      fresh().value(sum).sharding = left;
    }
    resolved_[id] = sum;
    // Who is summed for the step alone need not be kept as it was.
    if (value.kind == ir::ValueInfo::Kind::state && module_.state(value.state).step_local)
      in_place_.emplace_back(value.state, sum);
    return sum;
  }

  ValueId all_reduce(ValueId id, const std::string& axis, const char* reduce, const std::string& label,
                     const Node& user) {
    return rebuild_
        .add(std::string(ops::kAllReduce), {id},
             {{"axis", axis},
              {"parts", static_cast<std::int64_t>(module_.mesh.size_of(axis))},
              {"reduce", std::string(reduce)}},
             label + "." + axis, user)
        .front();
  }

  class Context final : public ir::PartitionContext {
   public:
    Context(GraphCutter& cutter, const Node& node, std::vector<ValueId> inputs, const NodeCut& plan)
        : cutter_(cutter), node_(node), inputs_(std::move(inputs)), plan_(plan), set_(node.outputs.size(), false) {}

    ValueId input(std::size_t i) const override { return inputs_.at(i); }
    const TensorType& type(ValueId value) const override { return cutter_.fresh().type(value); }
    const ir::Attributes& attributes() const override { return node_.attributes; }
    const std::string& axis() const override { return plan_.whole_axis; }
    int parts() const override { return cutter_.module_.mesh.size_of(axis()); }

    std::vector<ValueId> add(const std::string& op, std::vector<ValueId> inputs, ir::Attributes attributes) override {
      return cutter_.rebuild_.add(op, std::move(inputs), std::move(attributes), label(), node_);
    }
    ValueId all_reduce(ValueId value) override {
      return cutter_.all_reduce(value, axis(), "sum", cutter_.fresh().value(value).name, node_);
    }
    void set(std::size_t output, ValueId value, bool terms) override {
      Sharding result = plan_.outputs.at(output);
      if (terms) result.partial.push_back({axis(), Sharding::Reduce::sum});
      const ValueId old = node_.outputs.at(output);
      const TensorType expected = local_type(cutter_.rebuild_.old().type(old), result, cutter_.module_.mesh, label());
      if (type(value) != expected)
        fail("the part of output {} of {} is {}, expected {}", output, label(), type(value).str(), expected.str());
      cutter_.fresh().value(value).sharding = result;
      cutter_.rebuild_.map(old, value);
      set_[output] = true;
    }
    void check_set() const {
      for (std::size_t i = 0; i < set_.size(); ++i)
        if (!set_[i]) fail("the partition of {} '{}' makes no output {}", node_.op->name, label(), i);
    }

   private:
    const std::string& label() const { return cutter_.rebuild_.old().value(node_.outputs.front()).name; }

    GraphCutter& cutter_;
    const Node& node_;
    std::vector<ValueId> inputs_;
    const NodeCut& plan_;
    std::vector<bool> set_;
  };

  void partition(const Node& node, std::vector<ValueId> inputs, const NodeCut& plan) {
    Context context(*this, node, std::move(inputs), plan);
    node.op->partition(context);
    context.check_set();
  }

  // A sum of terms may be summed up over micro-batches first; other state is set whole.
  void settle(const ir::Write& write) {
    ValueId value = rebuild_.mapped(write.value);
    ir::State& state = module_.state(write.state);
    const bool sums = std::all_of(sharding(value).partial.begin(), sharding(value).partial.end(),
                                  [](const Sharding::Partial& p) { return p.reduce == Sharding::Reduce::sum; });
    const bool terms = write.mode == ir::Write::Mode::add && sums && !sharding(value).partial.empty();
    if (!terms) rebuild_.map(write.value, value = whole(value));
    if (const auto& dims = sharding(value).dims;
        std::any_of(dims.begin(), dims.end(), [](const auto& axes) { return !axes.empty(); }))
      fail("state '{}' is written with parts: '{}'", state.name, sharding(value).str());
    if (!terms) return;
    if (!state.sharding.replicated() && state.sharding != sharding(value))
      fail("state '{}' is summed up from '{}' and '{}'", state.name, state.sharding.str(), sharding(value).str());
    state.sharding = sharding(value);
  }

  ir::Module& module_;
  Rebuild rebuild_;
  std::map<ValueId, ValueId> resolved_;
  std::vector<std::pair<StateId, ValueId>> in_place_;
};

// Micro-batches decide how the state that they sum up is held; who reads it comes later.
std::vector<std::string> graph_order(const ir::Module& module) {
  std::vector<std::string> names;
  for (const ir::Graph& graph : module.graphs) names.push_back(graph.name);
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name == "micro"; });
  return names;
}

}  // namespace

void Shard::run(ir::Module& module) const {
  module.mesh = options_.mesh;
  for (const std::string& graph : graph_order(module)) {
    const bool seeded = std::find(options_.graphs.begin(), options_.graphs.end(), graph) != options_.graphs.end();
    GraphCutter(module, graph, seeded ? options_.seeds : std::vector<Seed>{}).run();
  }
}

}  // namespace trireme::passes
