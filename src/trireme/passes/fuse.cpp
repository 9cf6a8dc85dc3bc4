#include "trireme/passes/fuse.h"

#include <algorithm>
#include <optional>

#include "trireme/core/error.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::ValueId;

std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

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
         node.attributes.text("activation_grad") == "none" && !node.attributes.boolean("save_pre");
}

bool mergeable(const Node& a, const Node& b) {
  return a.phase == b.phase && a.stage == b.stage && a.barrier == b.barrier;
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : g_(graph), uses_(graph), gone_(graph.nodes.size(), false) {}

  void run() {
    for (std::size_t n = 0; n < g_.nodes.size(); ++n) {
      if (gone_[n]) continue;
      fuse_activation(n);
      fuse_activation_gradient(n);
      fuse_residual(n);
      fuse_residual_gradient(n);
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

  // Whether something reads the node's other outputs before position `at`.
  bool read_before(const Node& node, std::size_t at) const {
    for (std::size_t o = 1; o < node.outputs.size(); ++o)
      for (const std::int32_t consumer : uses_.consumers[index(node.outputs[o])])
        if (index(consumer) <= at) return true;
    return false;
  }

  Graph& g_;
  ir::Uses uses_;
  std::vector<bool> gone_;
};

}  // namespace

void Fuse::run(ir::Module& module) const {
  for (Graph& graph : module.graphs) Fuser(graph).run();
}

}  // namespace trireme::passes
