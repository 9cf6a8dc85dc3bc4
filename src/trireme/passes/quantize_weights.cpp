#include "trireme/passes/quantize_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/passes/propagate.h"
#include "trireme/passes/rebuild.h"
#include "trireme/passes/unread_states.h"

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;

// Which operand of an op is a weight that may be stored as codes, and where its rows end; nothing: none.
struct WeightUse {
  std::size_t operand = 0;
  int split = 1;
  bool table = false;
};

// A product of activations by a weight whose rows are contracted, and nothing else done to it.
bool is_linear(const Node& node) {
  const ir::Attributes& a = node.attributes;
  return node.op->name == "matmul" && a.boolean("trans_b") && !a.boolean("trans_a") && a.text("activation") == "none" &&
         a.text("activation_grad") == "none" && !a.boolean("save_pre") && !a.boolean("add") && a.text("out") == "same";
}

std::optional<WeightUse> weight_use(const Node& node) {
  if (node.op->name == "embedding" && !node.attributes.boolean("masked")) return WeightUse{1, 1, true};
  if (node.op->name == "linear_cross_entropy") return WeightUse{1, 1, true};
  if (!is_linear(node)) return std::nullopt;
  const std::int64_t split = node.attributes.integer("b_split");
  return WeightUse{1, static_cast<int>(split), false};
}

class Finder {
 public:
  Finder(const ir::Module& module, const QuantizeWeights::Options& options)
      : module_(module), options_(options), used_(options.rules.size(), false) {}

  std::vector<QuantizedWeight> run() {
    for (const ir::Graph& graph : module_.graphs) look_at(graph);
    std::vector<QuantizedWeight> found;
    for (const auto& [state, weight] : weights_)
      if (!others_.contains(state)) found.push_back(weight);
    std::erase_if(found, [&](QuantizedWeight& weight) { return !choose(weight); });
    for (std::size_t r = 0; r < used_.size(); ++r)
      if (!used_[r])
        refuse("{} names '{}', and no weight of the model has such a name{}", options_.rules_key,
               options_.rules[r].pattern, found.empty() ? "" : fmt::format("; one is '{}'", found.front().name));
    for (const QuantizedWeight& weight : found)
      if (const std::string problem = weight.format.problem(weight.k); !problem.empty())
        refuse("{} = \"{}\": {} in '{}'; {}", options_.key, weight.format.str(), problem, weight.name, nearest(weight));
    return found;
  }

 private:
  static StateId state_of(const ir::Graph& graph, ValueId value) {
    if (value == kNone) return kNone;
    const ir::ValueInfo& info = graph.value(value);
    return info.kind == ir::ValueInfo::Kind::state ? info.state : kNone;
  }

  void look_at(const ir::Graph& graph) {
    const std::set<ValueId> logits = logits_of(graph);
    for (const Node& node : graph.nodes) {
      const std::optional<WeightUse> use = weight_use(node);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const StateId state = state_of(graph, node.inputs[i]);
        if (state == kNone || !module_.state(state).trained) continue;
        if (!use || i != use->operand || module_.state(state).type.shape.rank() < 2) {
          others_.insert(state);
          continue;
        }
        const Shape& shape = module_.state(state).type.shape;
        const int split = use->split == -1 ? shape.rank() - 1 : use->split;
        QuantizedWeight weight;
        weight.name = module_.state(state).name;
        weight.type = module_.state(state).type;
        weight.n = shape.slice(0, split).elements();
        weight.k = shape.slice(split, shape.rank()).elements();
        weight.table = use->table || logits.contains(node.outputs.front());
        const auto [known, fresh] = weights_.try_emplace(state, weight);
        known->second.table |= weight.table;
        if (known->second.n != weight.n) others_.insert(state);
      }
    }
    for (const ir::Write& write : graph.writes) others_.insert(write.state);
    for (const ir::Output& output : graph.outputs) others_.insert(state_of(graph, output.value));
  }

  // Gives the weight its format; false: it is left as it is.
  bool choose(QuantizedWeight& weight) {
    weight.format = weight.table ? ops::CodeFormat{8, 0} : options_.format;
    bool none = false;
    for (std::size_t r = 0; r < options_.rules.size(); ++r)
      if (matches_pattern(options_.rules[r].pattern, weight.name)) {
        weight.format = options_.rules[r].format;
        none = options_.rules[r].none;
        used_[r] = true;
      }
    return !none;
  }

  static std::string nearest(const QuantizedWeight& weight) {
    ops::CodeFormat works{weight.format.bits, 0};
    for (const std::int64_t group : {32, 64, 128})
      if (weight.format.group > 0 && group <= weight.format.group && weight.k % group == 0) works.group = group;
    if (!works.problem(weight.k).empty()) works = {8, 0};
    return fmt::format("the nearest that works is \"{}\"", works.str());
  }

  const ir::Module& module_;
  const QuantizeWeights::Options& options_;
  std::vector<bool> used_;                      // by rule
  std::map<StateId, QuantizedWeight> weights_;  // read as weights
  std::set<StateId> others_;                    // read in another way too
};

struct Pair {
  StateId codes = kNone, scale = kNone;
};

class Replacer {
 public:
  Replacer(ir::Module& module, const std::string& graph, const std::map<std::string, const QuantizedWeight*>& weights,
           DType to)
      : module_(module), rebuild_(module, graph), weights_(weights), to_(to) {}

  void run() {
    for (const Node& node : rebuild_.old().nodes) {
      const std::optional<WeightUse> use = weight_use(node);
      const QuantizedWeight* weight = use ? weight_of(node.inputs[use->operand]) : nullptr;
      if (weight != nullptr)
        replace(node, *weight);
      else
        rebuild_.add_like(node, rebuild_.mapped(node.inputs));
    }
    rebuild_.finish();
  }

 private:
  const QuantizedWeight* weight_of(ValueId value) const {
    const ir::ValueInfo& info = rebuild_.old().value(value);
    if (info.kind != ir::ValueInfo::Kind::state) return nullptr;
    const auto found = weights_.find(module_.state(info.state).name);
    return found == weights_.end() ? nullptr : found->second;
  }

  void replace(const Node& node, const QuantizedWeight& weight) {
    const ir::Graph& old = rebuild_.old();
    const ValueId codes = read(weight.codes(), weight.format.codes(weight.n, weight.k));
    const ValueId scale = read(weight.scale(), weight.format.scales(weight.n, weight.k));
    ir::Attributes attributes = ops::code_attributes(weight.format);
    const std::string& label = old.value(node.outputs.front()).name;
    std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
    if (node.op->name == "matmul") {
      const Shape& shape = weight.type.shape;
      const std::int64_t split = node.attributes.integer("b_split");
      const Shape out = shape.slice(0, split == -1 ? shape.rank() - 1 : static_cast<int>(split));
      attributes.set("x_split", node.attributes.integer("a_split"));
      attributes.set("out", std::vector<std::int64_t>(out.begin(), out.end()));
      inputs.resize(3, kNone);
      rebuild_.map(
          node.outputs.front(),
          rebuild_.add("quantized_linear", {inputs[0], codes, scale, inputs[2]}, attributes, label, node).front());
      return;
    }
    attributes.set("width", weight.k);
    attributes.set("to", std::string(name_of(to_)));
    if (node.op->name == "embedding") {
      rebuild_.map(node.outputs.front(),
                   rebuild_.add("quantized_embedding", {inputs[0], codes, scale}, attributes, label, node).front());
      return;
    }
    inputs[1] = rebuild_.add("dequantize_rows", {codes, scale}, attributes, weight.name + ".rows", node).front();
    rebuild_.add_like(node, inputs);
  }

  ValueId read(const std::string& name, const TensorType& type) {
    StateId id = module_.find_state(name);
    if (id == kNone) {
      ir::State state;
      state.name = name;
      state.type = type;
      state.category = ir::Category::weights;
      id = module_.add_state(std::move(state));
    }
    return rebuild_.fresh().read(module_, id);
  }

  ir::Module& module_;
  Rebuild rebuild_;
  const std::map<std::string, const QuantizedWeight*>& weights_;
  DType to_;
};

}  // namespace

std::set<ValueId> logits_of(const ir::Graph& graph) {
  std::set<ValueId> found;
  const auto output = graph.find_output("logits");
  if (!output) return found;
  const ir::Uses uses(graph);
  for (ValueId value = *output; found.insert(value).second;) {
    const std::int32_t n = uses.producer[index(value)];
    if (n == kNone || graph.nodes[index(n)].op->name != "cast") break;
    value = graph.nodes[index(n)].inputs.front();
  }
  return found;
}

std::vector<QuantizedWeight> quantized_weights(const ir::Module& module, const QuantizeWeights::Options& options) {
  return Finder(module, options).run();
}

void QuantizeWeights::run(ir::Module& module) const {
  const std::vector<QuantizedWeight> found = quantized_weights(module, options_);
  if (found.empty())
    refuse("{} = \"{}\": the model has no weights of linear layers", options_.key, options_.format.str());
  std::map<std::string, const QuantizedWeight*> weights;
  for (const QuantizedWeight& weight : found) weights[weight.name] = &weight;
  for (const std::string& graph : options_.graphs)
    if (module.has_graph(graph)) Replacer(module, graph, weights, options_.to).run();
  drop_unread_states(module, [&](const ir::State& state) { return weights.contains(state.name); });
}

}  // namespace trireme::passes
