#include "trireme/passes/fuse.h"

#include <algorithm>
#include <optional>

#include "trireme/core/error.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// "gelu" with tanh is matmul's "gelu_tanh".
std::optional<std::string> activation_name(const Node& node, const char* suffix) {
  for (const char* name : {"relu", "gelu", "silu"}) {
    if (node.op->name != std::string(name) + suffix) continue;
    const bool tanh = node.attributes.find("tanh") != nullptr && node.attributes.boolean("tanh");
    return std::string(name) + (tanh ? "_tanh" : "");
  }
  return std::nullopt;
}

bool plain_matmul(const Node& node) {
  return node.op->name == "matmul" && node.attributes.text("activation") == "none" &&
         node.attributes.text("activation_grad") == "none" && !node.attributes.boolean("save_pre") &&
         !node.attributes.boolean("add");
}

bool mergeable(const Node& a, const Node& b) {
  return a.phase == b.phase && a.stage == b.stage && a.barrier == b.barrier;
}

class Fuser {
 public:
  Fuser(Graph& graph, const ir::Registry& registry, const Fuse::Options& options)
      : g_(graph), registry_(registry), options_(options), uses_(graph), gone_(graph.nodes.size(), false) {}

  void run() {
    for (std::size_t n = 0; n < g_.nodes.size(); ++n) {
      if (gone_[n]) continue;
      fuse_activation(n);
      if (!gone_[n]) fuse_activation_gradient(n);
      if (!gone_[n]) fuse_residual(n);
      if (!gone_[n]) fuse_residual_gradient(n);
      if (!gone_[n]) fuse_gate(n);
      if (!gone_[n]) fuse_gate_gradient(n);
      if (!gone_[n]) fuse_sum_of_products(n);
      if (!gone_[n] && options_.sums_in_norms) fuse_bias_gradient(n);
      if (!gone_[n]) fuse_batch_norm(n);
      if (!gone_[n]) fuse_batch_norm_gradient(n);
    }
    std::vector<Node> kept;
    for (std::size_t n = 0; n < g_.nodes.size(); ++n)
      if (!gone_[n]) kept.push_back(std::move(g_.nodes[n]));
    g_.nodes = std::move(kept);
  }

 private:
  // The node that makes `value`, if it may be merged with `user`.
  Node* producer(ValueId value, const Node& user) {
    if (value == kNone) return nullptr;
    const std::int32_t n = uses_.producer[index(value)];
    if (n == kNone || gone_[index(n)] || !mergeable(g_.nodes[index(n)], user)) return nullptr;
    return &g_.nodes[index(n)];
  }

  bool used_once(ValueId value) const {
    return uses_.consumers[index(value)].size() == 1 && !uses_.escapes[index(value)];
  }

  void place(const Node& node, std::size_t at) {
    for (const ValueId id : node.outputs) uses_.producer[index(id)] = static_cast<std::int32_t>(at);
  }

  void fuse_activation(std::size_t n) {
    const auto activation = activation_name(g_.nodes[n], "");
    if (!activation) return;
    const ValueId pre = g_.nodes[n].inputs.front();
    Node* matmul = producer(pre, g_.nodes[n]);
    if (matmul == nullptr || !plain_matmul(*matmul)) return;
    const bool keep = !used_once(pre);
    matmul->attributes.set("activation", *activation);
    matmul->attributes.set("save_pre", keep);
    matmul->outputs = g_.nodes[n].outputs;
    if (keep) matmul->outputs.push_back(pre);
    place(*matmul, static_cast<std::size_t>(matmul - g_.nodes.data()));
    gone_[n] = true;
  }

  void fuse_activation_gradient(std::size_t n) {
    const auto activation = activation_name(g_.nodes[n], "_grad");
    if (!activation) return;
    const Node& gradient = g_.nodes[n];
    const ValueId saved = gradient.inputs[0];
    const ValueId incoming = gradient.inputs[1];
    Node* matmul = producer(incoming, gradient);
    if (matmul == nullptr || !plain_matmul(*matmul) || matmul->inputs[2] != kNone || !used_once(incoming)) return;
    if (g_.type(saved).dtype != g_.type(matmul->inputs[0]).dtype) return;
    const auto at = static_cast<std::size_t>(matmul - g_.nodes.data());
    if (made_after(saved, at)) return;
    matmul->attributes.set("activation_grad", *activation);
    matmul->inputs[3] = saved;
    matmul->outputs = gradient.outputs;
    place(*matmul, at);
    gone_[n] = true;
  }

  bool made_after(ValueId value, std::size_t at) const {
    const std::int32_t n = value == kNone ? kNone : uses_.producer[index(value)];
    return n != kNone && index(n) > at;
  }

  void fuse_residual(std::size_t n) {
    Node& norm = g_.nodes[n];
    const bool layer = norm.op->name == "layer_norm";
    if (!layer && norm.op->name != "rms_norm") return;
    const std::size_t residual = layer ? 3 : 2;
    if (norm.inputs[residual] != kNone) return;
    const ValueId sum = norm.inputs.front();
    Node* add = producer(sum, norm);
    if (add == nullptr || add->op->name != "add" || g_.type(add->inputs[0]) != g_.type(add->inputs[1])) return;
    const auto at = static_cast<std::size_t>(add - g_.nodes.data());
    for (std::size_t i = 1; i < norm.inputs.size(); ++i)
      if (made_after(norm.inputs[i], at)) return;
    norm.inputs[residual] = add->inputs[1];
    norm.inputs[0] = add->inputs[0];
    norm.outputs.push_back(sum);
    // Where the sum was, since others may read it before the norm's own place.
    *add = std::move(norm);
    place(*add, at);
    gone_[n] = true;
  }

  void fuse_residual_gradient(std::size_t n) {
    Node& add = g_.nodes[n];
    if (add.op->name != "add" || g_.type(add.inputs[0]) != g_.type(add.inputs[1])) return;
    for (const std::size_t side : {0, 1}) {
      const ValueId own = add.inputs[side];
      const ValueId other = add.inputs[1 - side];
      Node* norm = producer(own, add);
      if (norm == nullptr || (norm->op->name != "layer_norm_grad" && norm->op->name != "rms_norm_grad")) continue;
      const std::size_t dsum = norm->op->name == "layer_norm_grad" ? 5 : 4;
      if (norm->inputs[dsum] != kNone || norm->outputs.front() != own || !used_once(own) || own == other) continue;
      if (read_before(*norm, n)) continue;
      norm->inputs[dsum] = other;
      norm->outputs.front() = add.outputs.front();
      gone_[static_cast<std::size_t>(norm - g_.nodes.data())] = true;
      add = std::move(*norm);
      place(add, n);
      return;
    }
  }

  // A product that gated ones are made of: 16 bits, nothing but two operands.
  Node* gated_product(ValueId value, const Node& user) {
    Node* matmul = producer(value, user);
    if (matmul == nullptr || !plain_matmul(*matmul) || matmul->inputs[2] != kNone ||
        matmul->attributes.boolean("trans_a") || matmul->attributes.text("out") != "same" ||
        size_of(g_.type(value).dtype) != 2)
      return nullptr;
    return matmul;
  }

  void make_gated(Node& node, const char* op, const Node& matmul) {
    node.op = registry_.find(op);
    node.attributes = {};
    for (const ir::AttributeSpec& a : node.op->attributes) node.attributes.set(a.name, *matmul.attributes.find(a.name));
  }

  // Where gradients read gate and up; elsewhere they would be written for nothing.
  void fuse_gate(std::size_t n) {
    if (g_.nodes[n].op->name != "swiglu") return;
    const ValueId gate = g_.nodes[n].inputs[0];
    const ValueId up = g_.nodes[n].inputs[1];
    Node* first = gated_product(gate, g_.nodes[n]);
    Node* second = gated_product(up, g_.nodes[n]);
    if (first == nullptr || second == nullptr || first == second || used_once(gate) || used_once(up) ||
        first->inputs[0] != second->inputs[0] || g_.type(first->inputs[1]) != g_.type(second->inputs[1]) ||
        first->attributes != second->attributes)
      return;
    const auto at = static_cast<std::size_t>(std::max(first, second) - g_.nodes.data());
    for (const ValueId value : {gate, up})
      for (const std::int32_t consumer : uses_.consumers[index(value)])
        if (index(consumer) < at) return;
    Node fused = g_.nodes[n];
    make_gated(fused, "gated_linear", *first);
    fused.inputs = {first->inputs[0], first->inputs[1], second->inputs[1]};
    fused.outputs = {g_.nodes[n].outputs.front(), gate, up};
    gone_[static_cast<std::size_t>(std::min(first, second) - g_.nodes.data())] = true;
    gone_[n] = true;
    g_.nodes[at] = std::move(fused);
    place(g_.nodes[at], at);
  }

  void fuse_gate_gradient(std::size_t n) {
    Node& node = g_.nodes[n];
    if (node.op->name != "swiglu_grad") return;
    const ValueId incoming = node.inputs[2];
    Node* matmul = gated_product(incoming, node);
    if (matmul == nullptr || !used_once(incoming)) return;
    make_gated(node, "gated_linear_grad", *matmul);
    node.inputs = {matmul->inputs[0], matmul->inputs[1], node.inputs[0], node.inputs[1]};
    gone_[static_cast<std::size_t>(matmul - g_.nodes.data())] = true;
  }

  // Into the later of the two, if the other is one too. (The sum of a product and something else is mostly one that
  // a norm takes.)
  void fuse_sum_of_products(std::size_t n) {
    const Node& add = g_.nodes[n];
    if (add.op->name != "add" || g_.type(add.inputs[0]) != g_.type(add.inputs[1])) return;
    Node* first = producer(add.inputs[0], add);
    Node* second = producer(add.inputs[1], add);
    if (first == nullptr || second == nullptr || first == second || first->op->name != "matmul" ||
        second->op->name != "matmul")
      return;
    Node* later = std::max(first, second);
    const ValueId own = add.inputs[later == first ? 0 : 1];
    const ValueId other = add.inputs[later == first ? 1 : 0];
    if (!plain_matmul(*later) || later->inputs[2] != kNone || !used_once(own)) return;
    later->attributes.set("add", true);
    later->inputs[3] = other;
    later->outputs = add.outputs;
    place(*later, static_cast<std::size_t>(later - g_.nodes.data()));
    gone_[n] = true;
  }

  // The sum over all rows of a norm's gradient.
  void fuse_bias_gradient(std::size_t n) {
    const Node& reduce = g_.nodes[n];
    if (reduce.op->name != "reduce" || reduce.attributes.text("kind") != "sum") return;
    const ValueId d = reduce.inputs.front();
    const std::int32_t at = uses_.producer[index(d)];
    if (at == kNone || gone_[index(at)]) return;
    Node& norm = g_.nodes[index(at)];
    if (norm.op->name != "layer_norm_grad" || norm.attributes.text("total") != "none" || norm.outputs.front() != d ||
        norm.stage != reduce.stage || norm.barrier != reduce.barrier ||
        g_.type(reduce.outputs.front()).shape != g_.type(norm.outputs[1]).shape)
      return;
    // One dimension is left, and it must be the last.
    const std::vector<std::int64_t>& dims = reduce.attributes.integers("dims");
    if (std::find(dims.begin(), dims.end(), g_.type(d).shape.rank() - 1) != dims.end()) return;
    norm.attributes.set("total", reduce.attributes.text("out"));
    norm.outputs.push_back(reduce.outputs.front());
    place(norm, index(at));
    gone_[n] = true;
  }

  // Whether something reads the node's other outputs before position `at`.
  bool read_before(const Node& node, std::size_t at) const {
    for (std::size_t o = 1; o < node.outputs.size(); ++o)
      for (const std::int32_t consumer : uses_.consumers[index(node.outputs[o])])
        if (index(consumer) <= at) return true;
    return false;
  }

  // A batch norm whose result nothing else reads, and that may move to `user`'s place.
  Node* plain_batch_norm(ValueId value, std::size_t user) {
    Node* norm = producer(value, g_.nodes[user]);
    if (norm == nullptr || norm->op->name != "batch_norm" || norm->outputs.front() != value || !used_once(value) ||
        norm->attributes.text("activation") != "none" || read_before(*norm, user))
      return nullptr;
    return norm;
  }

  void move(Node* from, std::size_t to) {
    gone_[static_cast<std::size_t>(from - g_.nodes.data())] = true;
    g_.nodes[to] = std::move(*from);
    place(g_.nodes[to], to);
  }

  void fuse_batch_norm(std::size_t n) {
    Node& node = g_.nodes[n];
    if (node.op->name == "relu") {
      Node* norm = plain_batch_norm(node.inputs.front(), n);
      if (norm == nullptr) return;
      norm->attributes.set("activation", std::string("relu"));
      norm->outputs.front() = node.outputs.front();
      move(norm, n);
    } else if (node.op->name == "add" && g_.type(node.inputs[0]) == g_.type(node.inputs[1])) {
      for (const std::size_t side : {1, 0}) {  // what was computed last is nearer
        Node* norm = plain_batch_norm(node.inputs[side], n);
        if (norm == nullptr || norm->inputs[5] != kNone) continue;
        norm->inputs[5] = node.inputs[1 - side];
        norm->outputs.front() = node.outputs.front();
        move(norm, n);
        return;
      }
    }
  }

  // At the place of the activation's gradient, whose result others may read before the norm's own place.
  void fuse_batch_norm_gradient(std::size_t n) {
    const Node& relu = g_.nodes[n];
    if (relu.op->name != "relu_grad") return;
    const ValueId passed = relu.outputs.front();
    const auto& consumers = uses_.consumers[index(passed)];
    const auto found = std::find_if(consumers.begin(), consumers.end(), [&](std::int32_t c) {
      const Node& norm = g_.nodes[index(c)];
      return !gone_[index(c)] && norm.op->name == "batch_norm_grad" && mergeable(norm, relu) &&
             norm.inputs[4] == passed && norm.attributes.text("activation") == "none" && inputs_before(norm, n);
    });
    if (found == consumers.end()) return;
    Node* norm = &g_.nodes[index(*found)];
    const ValueId y = relu.inputs[0];
    const bool total = !used_once(passed);
    norm->attributes.set("activation", std::string("relu"));
    norm->attributes.set("total", total);
    norm->inputs[4] = relu.inputs[1];
    if (const ValueId bias = gate_bias(y, norm->inputs[0]); bias != kNone && !total)
      norm->inputs[5] = bias;
    else
      norm->inputs[6] = y;
    if (total) {
      norm->outputs.push_back(passed);
      Node* add = producer(norm->inputs[4], relu);
      if (add != nullptr && add->op->name == "add" && used_once(norm->inputs[4]) &&
          g_.type(add->inputs[0]) == g_.type(add->inputs[1])) {
        norm->inputs[4] = add->inputs[0];
        norm->inputs[7] = add->inputs[1];
        gone_[static_cast<std::size_t>(add - g_.nodes.data())] = true;
      }
    }
    move(norm, n);
  }

  // The bias by which y's sign follows from x; kNone where it does not.
  ValueId gate_bias(ValueId y, ValueId x) const {
    const std::int32_t n = uses_.producer[index(y)];
    if (!options_.saved_exactly || n == kNone || gone_[index(n)]) return kNone;
    const Node& norm = g_.nodes[index(n)];
    const bool follows = norm.op->name == "batch_norm" && norm.inputs[0] == x && norm.inputs[5] == kNone &&
                         norm.attributes.text("activation") == "relu";
    return follows ? norm.inputs[2] : kNone;
  }

  bool inputs_before(const Node& node, std::size_t at) const {
    return std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
      const std::int32_t n = value == kNone ? kNone : uses_.producer[index(value)];
      return n != kNone && index(n) > at;
    });
  }

  Graph& g_;
  const ir::Registry& registry_;
  Fuse::Options options_;
  ir::Uses uses_;
  std::vector<bool> gone_;
};

}  // namespace

void Fuse::run(ir::Module& module) const {
  for (Graph& graph : module.graphs) Fuser(graph, *module.registry, options_).run();
}

}  // namespace trireme::passes
