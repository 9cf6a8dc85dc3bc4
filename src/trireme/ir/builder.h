#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::ir {

// Where nodes are added: a graph of a module, with the phase and the scope that names and marks them.
struct Site {
  Module* module = nullptr;
  std::string graph;
  Phase phase = Phase::forward;
};

// A handle to a value of the graph under construction. Copy freely. Default-constructed: an absent optional operand.
class Value {
 public:
  Value() = default;
  Value(std::shared_ptr<const Site> site, std::string scope, ValueId id)
      : site_(std::move(site)), scope_(std::move(scope)), id_(id) {}

  explicit operator bool() const { return id_ != kNone; }
  ValueId id() const { return id_; }
  // By value: a graph that grows moves its own.
  TensorType type() const;
  Shape shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  const std::shared_ptr<const Site>& site() const { return site_; }
  const std::string& scope() const { return scope_; }

 private:
  std::shared_ptr<const Site> site_;
  std::string scope_;  // of the code that made it: the name of ops applied to it starts there
  ValueId id_ = kNone;
};

// Adds `op` on `inputs` (at least one of them present) and gives its outputs. Node names are the scope of the first
// present input plus the op's name; `scope` overrides it.
std::vector<Value> apply(const std::string& op, std::vector<Value> inputs, Attributes attributes = {},
                         const std::string& scope = {});
// The first output.
Value apply1(const std::string& op, std::vector<Value> inputs, Attributes attributes = {},
             const std::string& scope = {});

// Builds a forward graph with names that follow the model:
//
//   Builder b(module, "micro");
//   auto k = b.scope("blocks", 3);
//   auto w = k.parameter("weight", {n, m}, Init::normal(0.02));   // blocks.3.weight
class Builder {
 public:
  Builder(Module& module, std::string graph);

  Builder scope(const std::string& name) const;
  Builder scope(const std::string& name, int index) const;
  const std::string& path() const { return path_; }

  // A trained parameter. Asking again for the same name gives the same parameter (shapes must agree).
  // Weight decay applies to parameters of two or more dimensions.
  Value parameter(const std::string& name, const Shape& shape, Init init) const;
  // A parameter without weight decay that starts at zero.
  Value bias(const std::string& name, const Shape& shape) const;
  // Other state that the forward pass reads, such as running statistics. Asking again gives the same state.
  Value state(const std::string& name, const TensorType& type, Category category, Init init) const;
  void write(const Value& state, const Value& value) const;

  // Asking again for the same name gives the same input (types must agree).
  Value input(const std::string& name, const TensorType& type) const;
  Value constant(double value, const TensorType& type) const;
  // The same value, with ops applied to it named after this scope.
  Value here(const Value& value) const;
  void output(const std::string& name, const Value& value) const;
  // A scalar summed over the micro-batches of a step into the state `name`.
  void accumulate(const std::string& name, const Value& value) const;

  // Rows (sequences or images) in the global batch: losses are sums divided by the global count.
  double rows_per_step = 0;
  // Whether dropout and batch statistics behave as in training.
  bool training = true;

  Module& module() const { return *site_->module; }
  Graph& graph() const { return site_->module->graph(site_->graph); }

 private:
  Value wrap(ValueId id) const { return {site_, path_, id}; }
  Value read_or_add(const State& wanted) const;
  Value trained_state(const std::string& name, const Shape& shape, Init init, bool decayed) const;
  std::string qualified(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  std::shared_ptr<const Site> site_;
  std::string path_;
};

// Handed to an op's gradient function. The function asks for what it needs and sets what it can:
//
//   def.gradient = [](GradientContext& g) {                      // y = relu(x)
//     g.set(0, apply1("relu_grad", {g.output(0), g.grad(0)}));
//   };
//
// grad(i) is absent when output i does not reach the loss. needs(i) tells whether anyone wants the gradient of input i;
// nodes made for an unwanted gradient are removed as dead code anyway, so asking is only worth it when it changes what
// is computed.
class GradientContext {
 public:
  GradientContext(Module& module, std::string graph, std::size_t node, std::vector<Value> grads,
                  std::vector<bool> needs);

  Value input(std::size_t i) const;
  Value output(std::size_t i) const;
  std::size_t inputs() const { return needs_.size(); }
  Value grad(std::size_t output = 0) const { return grads_[output]; }
  bool needs(std::size_t input) const { return needs_[input]; }
  const Attributes& attributes() const;

  void set(std::size_t input, Value gradient) { result_[input] = gradient; }
  const std::vector<Value>& result() const { return result_; }

  // Changes the forward node's attributes; outputs that this adds can then be used: for ops that compute their gradient
  // in the forward phase, or save more when a gradient is wanted.
  void extend_forward(const Attributes& changed);
  // Gives the forward node an optional operand that it was made without. The forward phase must know it: see is_given.
  void add_operand(std::size_t input, const Value& value);
  // Whether a value is there before the first node: a state or an input of the graph.
  bool is_given(const Value& value) const;
  // Whether a value is the constant 1 (the gradient of the loss itself, usually).
  bool is_one(const Value& value) const;
  // 0 of the given type.
  Value zeros(const TensorType& type) const;

 private:
  Graph& graph() const { return site_->module->graph(site_->graph); }
  const Node& node() const { return graph().nodes[node_]; }

  std::shared_ptr<const Site> site_;
  std::size_t node_;
  std::string scope_;
  std::vector<Value> grads_;
  std::vector<bool> needs_;
  std::vector<Value> result_;
};

}  // namespace trireme::ir
