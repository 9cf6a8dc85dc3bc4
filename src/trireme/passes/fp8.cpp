#include "trireme/passes/fp8.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/ops/collective/message.h"
#include "trireme/ops/matmul/problem.h"
#include "trireme/passes/rebuild.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::Phase;
using ir::ValueId;

constexpr std::int64_t kMultiple = 16;

// What only carries a value on: to where it is whole, to another precision or shape, or with its bias. Over tp a bias
// is added, and shards are put together, behind the product.
bool carries(const Node& node) {
  return (node.op->traits.collective && !ops::is_message(*node.op)) || node.op->traits.view ||
         node.op->name == "cast" || node.op->name == "transpose" || node.op->name == "add";
}

// The logits, which the loss reads.
bool is_output(const ir::Graph& graph, const ir::Uses& uses, ValueId value) {
  const auto& consumers = uses.consumers[ir::index(value)];
  return std::any_of(consumers.begin(), consumers.end(), [&](std::int32_t n) {
    const Node& node = graph.nodes[ir::index(n)];
    return node.op->name == "cross_entropy" ||
           (node.phase == Phase::forward && carries(node) && is_output(graph, uses, node.outputs.front()));
  });
}

class Quantizer {
 public:
  Quantizer(ir::Module& module, const std::string& graph)
      : module_(module), rebuild_(module, graph), uses_(rebuild_.old()) {}

  void run() {
    for (const Node& node : rebuild_.old().nodes)
      if (is_eligible(node))
        for (const Operand& operand : operands_of(node)) forms_[key_of(operand)].insert(operand.turned);
    for (const Node& node : rebuild_.old().nodes) {
      if (is_eligible(node))
        multiply(node);
      else
        rebuild_.add_like(node, rebuild_.mapped(node.inputs));
    }
    rebuild_.finish();
  }

 private:
  // What a product reads: of which tensor, how its dimensions are split, and whether it needs them the other way round.
  struct Operand {
    ValueId value;
    std::int64_t split;
    bool turned;
  };
  using Key = std::pair<ValueId, std::int64_t>;
  struct Codes {
    ValueId scale = kNone;
    std::map<bool, ValueId> forms;  // by `turned`
  };

  bool is_eligible(const Node& node) const {
    const ir::Graph& g = rebuild_.old();
    if (node.op->name != "matmul" || node.phase == Phase::update || node.barrier) return false;
    const ir::Attributes& a = node.attributes;
    if (a.text("activation") != "none" || a.text("activation_grad") != "none" || a.boolean("save_pre") ||
        a.boolean("add"))
      return false;
    if (size_of(g.type(node.inputs[0]).dtype) != 2) return false;
    if (is_gradient(node.inputs[0]) && is_gradient(node.inputs[1])) return false;
    if (is_output(g, uses_, node.outputs.front()) || is_gradient_of_output(node.inputs[0]) ||
        is_gradient_of_output(node.inputs[1]))
      return false;
    const ops::MatmulProblem p = ops::matmul_problem(g.type(node.inputs[0]), g.type(node.inputs[1]), a);
    return p.m > 0 && p.n > 0 && p.m % kMultiple == 0 && p.n % kMultiple == 0 && p.k % kMultiple == 0;
  }

  std::vector<Operand> operands_of(const Node& node) const {
    const ir::Graph& g = rebuild_.old();
    const ops::MatmulProblem p = ops::matmul_problem(g.type(node.inputs[0]), g.type(node.inputs[1]), node.attributes);
    return {{node.inputs[0], p.a_split, p.trans_a}, {node.inputs[1], p.b_split, !p.trans_b}};
  }
  static Key key_of(const Operand& o) { return {o.value, o.split}; }

  const Node* producer(ValueId value) const {
    const std::int32_t n = uses_.producer[ir::index(value)];
    return n == kNone ? nullptr : &rebuild_.old().nodes[ir::index(n)];
  }
  bool is_gradient(ValueId value) const {
    const Node* node = producer(value);
    return node != nullptr && (node->phase == Phase::input_gradient || node->phase == Phase::weight_gradient);
  }
  bool is_gradient_of_output(ValueId value) const {
    const Node* node = producer(value);
    return node != nullptr && (node->op->name == "cross_entropy_grad" ||
                               (is_gradient(value) && carries(*node) && is_gradient_of_output(node->inputs.front())));
  }
  const char* format_of(ValueId value) const { return is_gradient(value) ? "e5m2" : "e4m3"; }

  // Not only the weight's gradient reads these codes, so they are made in the order of the other gradients.
  static Node before_gradients(const Node& node) {
    Node like = node;
    if (like.phase == Phase::weight_gradient) like.phase = Phase::input_gradient;
    return like;
  }

  std::pair<ValueId, ValueId> codes_of(const Operand& operand, const Node& user) {
    Codes& codes = codes_[key_of(operand)];
    const Node like = before_gradients(user);
    const ir::ValueInfo& info = rebuild_.old().value(operand.value);
    const bool is_state = info.kind == ir::ValueInfo::Kind::state;
    const std::string label = (is_state ? module_.state(info.state).name : info.name) + ".fp8";
    const std::string format = format_of(operand.value);
    const ValueId x = rebuild_.mapped(operand.value);
    if (codes.scale == kNone)
      codes.scale = rebuild_.add("fp8_scale", {x}, {{"format", format}}, label + ".scale", like).front();
    if (!codes.forms.contains(operand.turned)) {
      // A weight's codes are made where they are read.
      const bool both = producer(operand.value) != nullptr && forms_.at(key_of(operand)).size() == 2;
      const std::string form = both ? "both" : operand.turned ? "columns" : "rows";
      const std::vector<ValueId> made =
          rebuild_.add("quantize_fp8", {x, codes.scale}, {{"format", format}, {"split", operand.split}, {"form", form}},
                       label, like);
      codes.forms[both ? false : operand.turned] = made.front();
      if (both) codes.forms[true] = made.back();
    }
    return {codes.forms.at(operand.turned), codes.scale};
  }

  void multiply(const Node& node) {
    const ir::Graph& old = rebuild_.old();
    const std::vector<Operand> operands = operands_of(node);
    const auto [a, a_scale] = codes_of(operands[0], node);
    const auto [b, b_scale] = codes_of(operands[1], node);
    // Free dimensions, which come first in the codes.
    const auto split = [&](const Operand& o) { return o.turned ? old.type(o.value).shape.rank() - o.split : o.split; };
    const ValueId y = node.outputs.front();
    const DType dtype = old.type(y).dtype;
    const std::string& label = old.value(y).name;
    ValueId result = rebuild_
                         .add("matmul_fp8", {a, b, a_scale, b_scale},
                              {{"a_split", split(operands[0])},
                               {"b_split", split(operands[1])},
                               {"a_format", std::string(format_of(operands[0].value))},
                               {"b_format", std::string(format_of(operands[1].value))},
                               {"fast", node.phase == Phase::forward},
                               {"out", std::string(name_of(dtype))}},
                              label, node)
                         .front();
    if (const ValueId bias = rebuild_.mapped(node.inputs[2]); bias != kNone) {
      ValueId added = bias;
      if (rebuild_.fresh().type(bias).dtype != dtype)
        added = rebuild_.add("cast", {bias}, {{"to", std::string(name_of(dtype))}}, label + ".bias", node).front();
      result = rebuild_.add("add", {result, added}, {}, label + ".biased", node).front();
    }
    rebuild_.fresh().value(result).sharding = old.value(y).sharding;
    rebuild_.map(y, result);
  }

  ir::Module& module_;
  Rebuild rebuild_;
  ir::Uses uses_;
  std::map<Key, std::set<bool>> forms_;
  std::map<Key, Codes> codes_;
};

}  // namespace

bool Fp8::is_for(const ir::Module& module) {
  const ir::Graph& graph = module.graph("micro");
  const ir::Uses uses(graph);
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op->name == "matmul" && !is_output(graph, uses, node.outputs.front());
  });
}

void Fp8::run(ir::Module& module) const { Quantizer(module, "micro").run(); }

}  // namespace trireme::passes
