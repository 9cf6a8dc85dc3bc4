#include "trireme/passes/precision.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Module;
using ir::Node;
using ir::StateId;
using ir::ValueId;

class Caster {
 public:
  Caster(Module& module, const std::string& graph, DType low) : module_(module), rebuild_(module, graph), low_(low) {}

  void run() {
    for (const Node& node : rebuild_.old().nodes) {
      std::vector<ValueId> inputs = rebuild_.mapped(node.inputs);
      const DType wanted = wanted_type(node, inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] != kNone) inputs[i] = as(inputs[i], keeps_f32(*node.op, i) ? DType::f32 : wanted, node);
      rebuild_.add_like(node, inputs);
    }
    restore_write_types();
    rebuild_.finish();
  }

 private:
  static const ir::OperandSpec& operand(const ir::OpDef& op, std::size_t i) {
    return op.operands[std::min(i, op.operands.size() - 1)];
  }
  static bool keeps_f32(const ir::OpDef& op, std::size_t i) { return operand(op, i).keep_f32; }

  DType wanted_type(const Node& node, const std::vector<ValueId>& inputs) const {
    if (node.op->precision == ir::Precision::low) return low_;
    if (node.op->precision == ir::Precision::follow)
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] != kNone && !keeps_f32(*node.op, i) && is_float(rebuild_.fresh().type(inputs[i]).dtype))
          return rebuild_.fresh().type(inputs[i]).dtype;
    return DType::f32;
  }

  ValueId as(ValueId value, DType wanted, const Node& user) {
    ir::Graph& g = rebuild_.fresh();
    const DType has = g.type(value).dtype;
    if (!is_float(has) || has == wanted) return value;
    const auto known = casts_.find({value, wanted});
    if (known != casts_.end()) return known->second;
    const ir::ValueInfo info = g.value(value);
    const std::string label = info.kind == ir::ValueInfo::Kind::state ? module_.state(info.state).name : info.name;
    ValueId result = kNone;
    if (info.kind == ir::ValueInfo::Kind::state && module_.state(info.state).trained && wanted == low_)
      result = g.read(module_, low_copy(info.state));
    else
      result =
          rebuild_.add("cast", {value}, {{"to", std::string(name_of(wanted))}}, label + "." + name_of(wanted), user)
              .front();
    casts_[{value, wanted}] = result;
    return result;
  }

  StateId low_copy(StateId parameter) {
    ir::State copy = module_.state(parameter);
    const std::string source = copy.name;
    copy.name = source + "/" + name_of(low_);
    if (const StateId known = module_.find_state(copy.name); known != kNone) return known;
    copy.type.dtype = low_;
    copy.derived_from = source;
    copy.init = {ir::Init::Kind::derived, 0};
    copy.saved = false;
    copy.trained = false;
    copy.decayed = false;
    return module_.add_state(copy);
  }

  // State that the graph sets keeps its type.
  void restore_write_types() {
    if (rebuild_.old().nodes.empty()) return;
    for (const ir::Write& write : rebuild_.old().writes) {
      const DType wanted = module_.state(write.state).type.dtype;
      if (write.mode == ir::Write::Mode::set)
        rebuild_.map(write.value, as(rebuild_.mapped(write.value), wanted, rebuild_.old().nodes.back()));
    }
  }

  Module& module_;
  Rebuild rebuild_;
  DType low_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

// What the graph reads in the low precision alone comes in it.
void narrow_inputs(ir::Graph& graph, DType low) {
  const ir::Uses uses(graph);
  std::map<ValueId, ValueId> replaced;  // casts by the inputs they read
  for (const ValueId input : graph.inputs) {
    const auto& consumers = uses.consumers[static_cast<std::size_t>(input)];
    const bool narrow = graph.type(input).dtype == DType::f32 && !consumers.empty() &&
                        !uses.escapes[static_cast<std::size_t>(input)] &&
                        std::all_of(consumers.begin(), consumers.end(), [&](std::int32_t n) {
                          const Node& node = graph.nodes[static_cast<std::size_t>(n)];
                          return node.op->name == "cast" && graph.type(node.outputs.front()).dtype == low;
                        });
    if (!narrow) continue;
    for (const std::int32_t n : consumers) replaced[graph.nodes[static_cast<std::size_t>(n)].outputs.front()] = input;
    graph.value(input).type.dtype = low;
  }
  if (replaced.empty()) return;
  const auto replace = [&](ValueId& value) {
    if (const auto found = replaced.find(value); found != replaced.end()) value = found->second;
  };
  std::erase_if(graph.nodes, [&](const Node& node) { return replaced.contains(node.outputs.front()); });
  for (Node& node : graph.nodes) std::for_each(node.inputs.begin(), node.inputs.end(), replace);
  for (ir::Write& write : graph.writes) replace(write.value);
  for (ir::Output& output : graph.outputs) replace(output.value);
}

}  // namespace

void LowPrecision::run(Module& module) const {
  for (const std::string& graph : options_.graphs) {
    if (!module.has_graph(graph)) continue;
    Caster(module, graph, options_.low).run();
    narrow_inputs(module.graph(graph), options_.low);
  }
}

}  // namespace trireme::passes
