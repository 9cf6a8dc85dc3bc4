#include "trireme/passes/autodiff.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/ir/builder.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Module;
using ir::Node;
using ir::Phase;
using ir::StateId;
using ir::Value;
using ir::ValueId;

class Differentiator {
 public:
  Differentiator(Module& module, const Autodiff::Options& options)
      : module_(module),
        options_(options),
        forward_nodes_(graph().nodes.size()),
        site_(std::make_shared<ir::Site>(ir::Site{&module, options.graph, Phase::input_gradient})) {}

  void run() {
    const std::vector<ValueId> losses = find_losses();
    find_trained_values();
    if (std::none_of(losses.begin(), losses.end(), [&](ValueId loss) { return needs(loss); }))
      fail("the loss does not depend on any trained parameter");
    contributions_.resize(graph().values.size());
    for (const ValueId loss : losses)
      if (needs(loss)) contribute(loss, seed(graph().type(loss), stage_of(loss)));
    for (std::size_t n = forward_nodes_; n-- > 0;) differentiate(n);
    const ir::Uses uses(graph());
    std::map<StateId, std::vector<ValueId>> parts;
    for (std::size_t i = 0; i < parameter_.size(); ++i)
      if (parameter_[i] != kNone)
        for (const Value& part : contributions_[i]) parts[parameter_[i]].push_back(part.id());
    for (std::size_t s = 0; s < module_.states.size(); ++s)
      if (module_.states[s].trained && parts[static_cast<StateId>(s)].empty()) refuse_unreached(module_.states[s]);
    for (const StateId parameter : trained_) write_gradient(parameter, parts[parameter], uses);
  }

 private:
  Graph& graph() const { return module_.graph(options_.graph); }
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
  bool needs(ValueId id) const { return id != kNone && needs_[index(id)]; }

  [[noreturn]] static void refuse_unreached(const ir::State& parameter) {
    refuse(
        "the loss does not depend on parameter '{}', so that it has no gradient: use it on the way to the loss, or "
        "leave it out of the model",
        parameter.name);
  }

  // Everything that is added to the loss.
  std::vector<ValueId> find_losses() const {
    const StateId state = module_.find_state(options_.loss);
    std::vector<ValueId> losses;
    for (const ir::Write& write : graph().writes) {
      if (write.state != state) continue;
      if (graph().type(write.value).elements() != 1)
        fail("the loss must be a scalar, got {}", graph().type(write.value).str());
      losses.push_back(write.value);
    }
    if (losses.empty()) fail("graph '{}' accumulates no '{}'", options_.graph, options_.loss);
    return losses;
  }

  // The parameter whose gradient a state's gradient is: itself, or what it is a low-precision copy of.
  StateId parameter_of(StateId state) const {
    const ir::State& s = module_.state(state);
    const StateId source = s.derived_from.empty() ? state : module_.find_state(s.derived_from);
    return module_.state(source).trained ? source : kNone;
  }

  void find_trained_values() {
    const Graph& g = graph();
    needs_.assign(g.values.size(), false);
    only_state_.assign(g.values.size(), false);
    parameter_.assign(g.values.size(), kNone);
    for (std::size_t i = 0; i < g.values.size(); ++i) {
      if (g.values[i].kind != ir::ValueInfo::Kind::state) continue;
      only_state_[i] = true;
      const StateId parameter = parameter_of(g.values[i].state);
      if (parameter == kNone) continue;
      parameter_[i] = parameter;
      needs_[i] = true;
      if (std::find(trained_.begin(), trained_.end(), parameter) == trained_.end()) trained_.push_back(parameter);
    }
    for (const Node& node : g.nodes) {
      bool any = false;
      bool all_state = true;
      for (const ValueId id : node.inputs) {
        any = any || needs(id);
        all_state = all_state && (id == kNone || only_state_[index(id)]);
      }
      for (const ValueId id : node.outputs) {
        needs_[index(id)] = any && is_float(g.type(id).dtype);
        only_state_[index(id)] = all_state;
      }
    }
  }

  // Of the node that makes a value.
  std::int32_t stage_of(ValueId id) const {
    for (const Node& node : graph().nodes)
      if (std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end()) return node.stage;
    return 0;
  }

  Value seed(const TensorType& type, std::int32_t stage) const {
    if (options_.seed.empty()) return one(type, stage);
    StateId id = module_.find_state(options_.seed);
    if (id == kNone) {
      ir::State state;
      state.name = options_.seed;
      state.type = type;
      state.category = ir::Category::scalars;
      state.init = ir::Init::constant(1);
      id = module_.add_state(state);
    }
    if (module_.state(id).type != type)
      fail("the loss is {}, the state '{}' that its gradient starts from {}", type.str(), options_.seed,
           module_.state(id).type.str());
    return {site_, "loss", graph().read(module_, id)};
  }

  Value one(const TensorType& type, std::int32_t stage) const {
    const std::vector<std::int64_t> dims(type.shape.begin(), type.shape.end());
    const auto ids = graph().add(module_.registry->at("fill"), {},
                                 {{"value", 1.0}, {"shape", dims}, {"dtype", std::string(name_of(type.dtype))}},
                                 "loss.grad", Phase::input_gradient, stage);
    return {site_, "loss", ids.front()};
  }

  void contribute(ValueId id, const Value& gradient) {
    if (!gradient || !needs(id)) return;
    if (gradient.shape() != graph().type(id).shape)
      fail("the gradient of '{}' {} has shape {}", graph().value(id).name, graph().type(id).str(),
           gradient.shape().str());
    contributions_[index(id)].push_back(gradient);
  }

  // The sum of all contributions to a value's gradient.
  Value collect(ValueId id) {
    std::vector<Value>& parts = contributions_[index(id)];
    if (parts.empty()) return {};
    while (parts.size() > 1) {
      // Where both were made; else towards the node that made the value.
      const std::int32_t stage = std::min(stage_of(parts[0].id()), stage_of(parts[1].id()));
      const Value sum = ir::apply1("add", {parts[0], parts[1]});
      graph().nodes.back().stage = stage;
      if (only_state_[index(id)]) graph().nodes.back().phase = Phase::weight_gradient;
      parts.erase(parts.begin());
      parts[0] = sum;
    }
    return parts[0];
  }

  void differentiate(std::size_t n) {
    const Node node = graph().nodes[n];  // a copy: the graph grows below
    std::vector<Value> grads;
    bool reached = false;
    for (const ValueId id : node.outputs) {
      grads.push_back(collect(id));
      reached = reached || grads.back();
    }
    std::vector<bool> wanted;
    bool any = false;
    for (const ValueId id : node.inputs) {
      wanted.push_back(needs(id));
      any = any || wanted.back();
    }
    if (!reached || !any) return;
    if (!node.op->gradient)
      fail("'{}' is on the way from the loss to a parameter, but {} has no gradient: {}",
           graph().value(node.outputs.front()).name, node.op->name, node.op->no_gradient);
    const std::size_t first = graph().nodes.size();
    ir::GradientContext context(module_, options_.graph, n, std::move(grads), wanted);
    node.op->gradient(context);
    // Gradients an op makes in the forward phase appear as further outputs of the node.
    contributions_.resize(graph().values.size());
    needs_.resize(graph().values.size(), false);
    only_state_.resize(graph().values.size(), false);
    for (std::size_t added = first; added < graph().nodes.size(); ++added) graph().nodes[added].stage = node.stage;
    mark_phases(node, context.result(), first);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (wanted[i]) contribute(node.inputs[i], context.result()[i]);
  }

  // Of the nodes from `first` on, those that only parameters' gradients need become weight gradients.
  void mark_phases(const Node& node, const std::vector<Value>& results, std::size_t first) {
    Graph& g = graph();
    std::vector<bool> for_activations(g.values.size(), false);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i] && node.inputs[i] != kNone && !only_state_[index(node.inputs[i])])
        for_activations[index(results[i].id())] = true;
    for (std::size_t n = g.nodes.size(); n-- > first;) {
      bool wanted = false;
      for (const ValueId id : g.nodes[n].outputs) wanted = wanted || for_activations[index(id)];
      g.nodes[n].phase = wanted ? Phase::input_gradient : Phase::weight_gradient;
      if (!wanted) continue;
      for (const ValueId id : g.nodes[n].inputs)
        if (id != kNone) for_activations[index(id)] = true;
    }
  }

  void write_gradient(StateId parameter, const std::vector<ValueId>& parts, const ir::Uses& uses) {
    Graph& g = graph();
    ir::State state;
    state.name = gradient_name(module_.state(parameter).name);
    state.type = module_.state(parameter).type;
    state.type.dtype = sum_type(parts);
    state.category = ir::Category::gradients;
    state.saved = false;
    state.step_local = true;
    const StateId id = module_.add_state(state);
    for (const ValueId part : parts) {
      if (g.type(part).dtype != state.type.dtype) widen(part, uses);
      g.writes.push_back({id, part, ir::Write::Mode::add});
    }
  }

  // Two contributions are each rounded once and their sum once more; further ones would lose what is small against it.
  DType sum_type(const std::vector<ValueId>& parts) const {
    const DType own = graph().type(parts.front()).dtype;
    const bool alike =
        std::all_of(parts.begin(), parts.end(), [&](ValueId part) { return graph().type(part).dtype == own; });
    return options_.f32_gradients || parts.size() > 2 || !alike ? DType::f32 : own;
  }

  // Lets the node that makes `value` write f32 at once, where its op can and nobody else reads it.
  void widen(ValueId value, const ir::Uses& uses) {
    Graph& g = graph();
    const std::int32_t producer = uses.producer[index(value)];
    if (producer == kNone || !uses.consumers[index(value)].empty()) return;
    Node& node = g.nodes[static_cast<std::size_t>(producer)];
    if (node.attributes.find("out") == nullptr) return;
    const auto at =
        static_cast<std::size_t>(std::find(node.outputs.begin(), node.outputs.end(), value) - node.outputs.begin());
    ir::Attributes wide = node.attributes;
    wide.set("out", std::string("f32"));
    const TensorType type = node.op->infer(g.input_types(node), wide)[at];
    if (type.dtype != DType::f32) return;  // `out` is about another output
    node.attributes = wide;
    g.value(value).type = type;
  }

  Module& module_;
  const Autodiff::Options& options_;
  std::size_t forward_nodes_;
  std::shared_ptr<const ir::Site> site_;
  std::vector<StateId> trained_;
  std::vector<bool> needs_;
  std::vector<bool> only_state_;    // computed from state alone
  std::vector<StateId> parameter_;  // by value of the forward graph: the parameter it reads
  std::vector<std::vector<Value>> contributions_;
};

}  // namespace

std::string gradient_name(const std::string& parameter) { return parameter + "/grad"; }

void Autodiff::run(Module& module) const { Differentiator(module, options_).run(); }

}  // namespace trireme::passes
