#include "trireme/passes/optimizer.h"

#include <array>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/passes/autodiff.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Module;
using ir::Phase;
using ir::StateId;
using ir::ValueId;

class UpdateBuilder {
 public:
  UpdateBuilder(Module& module, const Optimizer::Options& options)
      : module_(module), options_(options), loss_(module.find_state("loss")) {
    if (loss_ == kNone) fail("nothing is accumulated as 'loss'");
    module_.add_graph("update");
  }

  void run() {
    Graph& g = graph();
    lr_ = g.add_input("lr", {DType::f32, {}});
    if (adam_) step_ = g.add_input("step", {DType::f32, {}});
    std::vector<StateId> parameters;
    for (std::size_t i = 0; i < module_.states.size(); ++i)
      if (module_.states[i].trained) parameters.push_back(static_cast<StateId>(i));
    low_copies_ = low_copies(module_);
    clip(parameters);
    for (const StateId parameter : parameters) update(parameter);
    take_over_statistics();
    g.outputs.push_back({"loss", g.read(module_, loss_)});
    g.outputs.push_back({"grad_norm", norm_});
    g.outputs.push_back({"finite", finite_});
  }

 private:
  Graph& graph() { return module_.graph("update"); }

  std::vector<ValueId> add(const char* op, std::vector<ValueId> inputs, ir::Attributes attributes,
                           const std::string& name) {
    return graph().add(module_.registry->at(op), std::move(inputs), std::move(attributes), name, Phase::update);
  }

  ValueId gradient(StateId parameter) {
    const std::string name = gradient_name(module_.state(parameter).name);
    const StateId state = module_.find_state(name);
    if (state == kNone) fail("parameter '{}' has no gradient", module_.state(parameter).name);
    return graph().read(module_, state);
  }

  void clip(const std::vector<StateId>& parameters) {
    std::vector<ValueId> squares;
    squares.reserve(parameters.size());
    for (const StateId p : parameters)
      squares.push_back(add("sum_squares", {gradient(p)}, {}, module_.state(p).name + ".square").front());
    const ValueId total = add("add_n", squares, {}, "grad_square").front();
    const ValueId loss = graph().read(module_, loss_);
    const auto scale = add("clip_scale", {total, loss}, {{"max_norm", options_.clip}}, "clip");
    norm_ = scale[0];
    factor_ = scale[1];
    finite_ = scale[2];
  }

  StateId optimizer_state(StateId parameter, const char* suffix) {
    ir::State state;
    state.name = module_.state(parameter).name + "/" + suffix;
    state.type = module_.state(parameter).type;
    state.category = ir::Category::optimizer;
    return module_.add_state(state);
  }

  void set(StateId state, ValueId value) { graph().writes.push_back({state, value, ir::Write::Mode::set}); }

  void update(StateId parameter) {
    const std::string name = module_.state(parameter).name;
    const double decay = module_.state(parameter).decayed ? options_.weight_decay : 0.0;
    std::vector<StateId> states = {parameter};
    std::vector<ValueId> inputs = {graph().read(module_, parameter), gradient(parameter)};
    ir::Attributes attributes{{"weight_decay", decay}};
    for (const char* suffix : adam_ ? std::vector<const char*>{"m", "v"} : std::vector<const char*>{"momentum"}) {
      states.push_back(optimizer_state(parameter, suffix));
      inputs.push_back(graph().read(module_, states.back()));
    }
    inputs.push_back(lr_);
    if (adam_) {
      inputs.push_back(step_);
      attributes.set("beta1", options_.beta1);
      attributes.set("beta2", options_.beta2);
      attributes.set("eps", options_.eps);
    } else {
      attributes.set("momentum", options_.momentum);
    }
    inputs.push_back(factor_);
    inputs.push_back(finite_);
    const StateId copy = low_copy(name);
    if (copy != kNone) attributes.set("low", std::string(name_of(module_.state(copy).type.dtype)));
    const char* const op = adam_ ? "adamw" : "sgd";
    const auto updated = add(op, inputs, attributes, name + "." + op);
    if (copy != kNone) states.push_back(copy);
    for (std::size_t i = 0; i < states.size(); ++i) set(states[i], updated[i]);
  }

  // The first that is derived from each state.
  static std::unordered_map<std::string, StateId> low_copies(const Module& module) {
    std::unordered_map<std::string, StateId> copies;
    for (std::size_t i = 0; i < module.states.size(); ++i)
      if (const std::string& source = module.states[i].derived_from; !source.empty())
        copies.emplace(source, static_cast<StateId>(i));
    return copies;
  }
  StateId low_copy(const std::string& parameter) const {
    const auto found = low_copies_.find(parameter);
    return found == low_copies_.end() ? kNone : found->second;
  }

  // The micro graph reads and writes the shadow; outside a step shadow and state are equal.
  void take_over_statistics() {
    Graph& micro = module_.graph("micro");
    for (ir::Write& write : micro.writes) {
      if (write.mode != ir::Write::Mode::set) continue;
      const StateId kept = write.state;
      ir::State shadow = module_.state(kept);
      shadow.name += "/next";
      shadow.saved = false;
      shadow.derived_from = module_.state(kept).name;
      shadow.init = {ir::Init::Kind::derived, 0};
      const StateId next = module_.add_state(shadow);
      for (std::size_t v = 0; v < micro.values.size(); ++v)
        if (micro.values[v].kind == ir::ValueInfo::Kind::state && micro.values[v].state == kept) {
          micro.values[v].state = next;
          micro.rename(std::array{static_cast<ValueId>(v)}, std::array{"@" + shadow.name});
        }
      write.state = next;
      const ValueId chosen = add("select", {finite_, graph().read(module_, next), graph().read(module_, kept)}, {},
                                 shadow.name + ".select")
                                 .front();
      set(kept, chosen);
      set(next, chosen);
    }
  }

  Module& module_;
  const Optimizer::Options& options_;
  const bool adam_ = options_.kind == Optimizer::Kind::adamw;
  StateId loss_;
  ValueId lr_ = kNone;
  ValueId step_ = kNone;
  ValueId norm_ = kNone;
  ValueId factor_ = kNone;
  ValueId finite_ = kNone;
  std::unordered_map<std::string, StateId> low_copies_;  // before the optimizer's own states
};

}  // namespace

Optimizer::Kind Optimizer::parse(std::string_view name) {
  if (name == "adamw") return Kind::adamw;
  if (name == "sgd") return Kind::sgd;
  fail("there is no optimizer '{}'; there are adamw and sgd", name);
}

void Optimizer::run(Module& module) const { UpdateBuilder(module, options_).run(); }

bool is_variance(const ir::State& state) {
  return state.category == ir::Category::optimizer && state.name.ends_with("/v");
}

}  // namespace trireme::passes
