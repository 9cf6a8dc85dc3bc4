#include "trireme/passes/sequence_cache.h"

#include "trireme/core/error.h"
#include "trireme/ops/attention/cached_attention.h"
#include "trireme/ops/attention/cached_attention_int8.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;

StateId cache(ir::Module& module, const std::string& name, const TensorType& type) {
  if (const StateId known = module.find_state(name); known != kNone) {
    if (module.state(known).type != type)
      fail("the cache '{}' is {} in one graph and {} in another", name, module.state(known).type.str(), type.str());
    return known;
  }
  ir::State state;
  state.name = name;
  state.type = type;
  state.category = ir::Category::cache;
  state.saved = false;
  return module.add_state(std::move(state));
}

class Continue {
 public:
  Continue(ir::Module& module, const std::string& graph, const SequenceCache::Options& options)
      : module_(module), rebuild_(module, graph), options_(options) {}

  void run() {
    position_ = rebuild_.fresh().add_input("position", {DType::i32, {}});
    for (const Node& node : rebuild_.old().nodes) {
      std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
      if (node.op->name == "attention") {
        attend(node, std::move(inputs));
        continue;
      }
      if (const int at = node.op->traits.position_operand; at >= 0) {
        inputs.resize(std::max(inputs.size(), static_cast<std::size_t>(at) + 1), kNone);
        ValueId& position = inputs[static_cast<std::size_t>(at)];
        if (position == kNone) position = position_;
      }
      rebuild_.add_like(node, std::move(inputs));
    }
    rebuild_.finish();
  }

 private:
  void attend(const Node& node, std::vector<ValueId> inputs) {
    const std::string name = rebuild_.old().value(node.outputs.front()).name;
    if (!node.attributes.boolean("causal")) fail("'{}' is not causal: its rows see what comes later", name);
    inputs.resize(3, kNone);
    ir::Graph& fresh = rebuild_.fresh();
    ir::Types types;
    for (const ValueId id : inputs) types.push_back(id == kNone ? TensorType::none() : fresh.type(id));
    const TensorType type = ops::attention_cache_type(types, options_.rows);
    std::vector<StateId> kept;
    for (const char* part : {"/k", "/v"}) {
      if (!options_.int8) {
        kept.push_back(cache(module_, name + part, type));
        continue;
      }
      kept.push_back(cache(module_, name + part, ops::cache_codes(type)));
      kept.push_back(cache(module_, name + part + "/scale", ops::cache_scales(type)));
    }
    for (const StateId state : kept) inputs.push_back(fresh.read(module_, state));
    inputs.push_back(position_);
    const std::vector<ValueId> outputs =
        rebuild_.add(options_.int8 ? "cached_attention_int8" : "cached_attention", std::move(inputs),
                     {{"scale", node.attributes.real("scale")}}, name, node);
    rebuild_.map(node.outputs.front(), outputs[0]);
    for (std::size_t i = 0; i < kept.size(); ++i)
      fresh.writes.push_back({kept[i], outputs[i + 1], ir::Write::Mode::set});
  }

  ir::Module& module_;
  Rebuild rebuild_;
  const SequenceCache::Options& options_;
  ValueId position_ = kNone;
};

}  // namespace

void SequenceCache::run(ir::Module& module) const {
  for (const std::string& graph : options_.graphs) Continue(module, graph, options_).run();
}

}  // namespace trireme::passes
