#pragma once
#include <trireme/export.h>
#include <trireme/inputs.h>
#include <trireme/model_config.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

// A value of the model under construction: a handle, copied freely, of use while the model's function runs.
// Default-constructed: absent, as targets are where a model is asked for its predictions.
class TRIREME_API Value {
 public:
  Value() = default;
  explicit operator bool() const { return impl_ != nullptr; }
  Extents shape() const;

 private:
  friend struct Access;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// What a model reads. Sequence models use tokens and targets, image models images and labels, and others what their
// data give by names of their own. Without targets or labels a model gives its predictions instead of its loss; the
// losses below do so by themselves.
struct Batch {
  Value tokens;   // i32 [rows, context]
  Value targets;  // i32 [rows, context]: the token after each
  Value images;   // f32 [rows, height, width, channels]
  Value labels;   // i32 [rows]

  // The input of that name: [rows, …], or as it is where it is whole. Absent for a target where predictions are asked
  // for. Refuses a name that the data do not have, with the nearest.
  TRIREME_API Value operator[](const std::string& name) const;

  bool predicting = false;  // whether the model is asked for its predictions and not for its loss
  std::map<std::string, Value> inputs = {};
};

// What a parameter holds before the first step: a pure function of the seed, the parameter's name and the element.
struct Init {
  enum class Kind { zeros, constant, normal, uniform };
  Kind kind = Kind::zeros;
  double value = 0;  // constant: the value; normal: the deviation; uniform: the bound

  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
};

// Where a model is built: a place in the tree of names that its parameters get.
//
//   Builder k = b.scope("blocks", 3);
//   Value w = k.scope("up").parameter("weight", {1024, 256}, Init::normal(0.02));   // blocks.3.up.weight
class TRIREME_API Builder {
 public:
  Builder scope(const std::string& name) const;
  Builder scope(const std::string& name, int index) const;
  // This scope for a layer that is meant to use the parameters another one has made here. Without it, a second layer in
  // one scope is refused: it would share them by accident. A batch norm cannot share: its running statistics are of one
  // layer's inputs.
  Builder shared() const;

  // A trained parameter, f32. Asking again for the same name gives the same parameter (the shapes must agree): that is
  // how weights are shared. Weight decay applies to parameters of two or more dimensions.
  Value parameter(const std::string& name, const Extents& shape, Init init = {}) const;
  // The same value, with what is computed from it named after this scope.
  Value here(const Value& value) const;
  // False where held-out data are evaluated or predictions are made.
  bool training() const;

 private:
  friend struct Access;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// A model is one function from a batch to its loss: plain mathematics, which knows nothing of devices, ranks or memory.
using Model = std::function<Value(Builder&, const Batch&)>;

// The usual layers. Each keeps its parameters in the scope it is given.

struct LinearOptions {
  bool bias = true;
  double deviation = 0.02;  // of the weight's start values
};
// x [..., in] → [..., out]; weight [out, in].
TRIREME_API Value linear(const Builder& b, const Value& x, std::int64_t out, const LinearOptions& options = {});

// tokens i32 [...] → [..., width]; weight [vocab, width].
TRIREME_API Value embedding(const Builder& b, const Value& tokens, std::int64_t vocab, std::int64_t width,
                            double deviation = 0.02);

struct AttentionOptions {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // heads of keys and values; 0: as many as heads
  bool causal = true;         // each position sees itself and those before it
  Value starts = {};          // causal: the first position that each sees, as document_starts gives it; absent: 0
  double rotary = 10000;      // base of the rotary positions; 0: none, and attention does not know the order
  double deviation = 0.02;    // of the weights' start values
};
// For each of tokens [rows, positions], where its document begins: after the last token `end` before it.
TRIREME_API Value document_starts(const Value& tokens, std::int64_t end);
// Self-attention of x [rows, positions, width], with projections q, k, v [heads, width / heads, width] and o.
TRIREME_API Value attention(const Builder& b, const Value& x, const AttentionOptions& options);

// Over the last dimension.
TRIREME_API Value layer_norm(const Builder& b, const Value& x, double eps = 1e-5);
TRIREME_API Value rms_norm(const Builder& b, const Value& x, double eps = 1e-5);
// x [..., channels]; keeps running statistics, which are used outside training.
TRIREME_API Value batch_norm(const Builder& b, const Value& x, double momentum = 0.1, double eps = 1e-5);
// Nothing outside training.
TRIREME_API Value dropout(const Builder& b, const Value& x, double p);

struct ConvOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;
  std::int64_t dilation = 1;  // elements of x from one of the kernel to the next
  std::int64_t groups = 1;    // of channels, each with outputs of its own; as many as channels: depthwise
};
// x [rows, h, w, c] → [rows, h', w', out], no bias; weight [out, kernel, kernel, c / groups].
TRIREME_API Value conv(const Builder& b, const Value& x, std::int64_t out, const ConvOptions& options = {});

struct PoolOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
};
// x [rows, h, w, c] → [rows, h', w', c].
TRIREME_API Value max_pool(const Value& x, const PoolOptions& options = {});
TRIREME_API Value avg_pool(const Value& x, const PoolOptions& options = {});
// x [rows, h, w, c] → [rows, c].
TRIREME_API Value global_avg_pool(const Value& x);

TRIREME_API Value relu(const Value& x);
TRIREME_API Value gelu(const Value& x);       // exact
TRIREME_API Value gelu_tanh(const Value& x);  // tanh approximation
TRIREME_API Value silu(const Value& x);
TRIREME_API Value swiglu(const Value& gate, const Value& up);  // silu(gate) * up
TRIREME_API Value reshape(const Value& x, const Extents& shape);
TRIREME_API Value softmax(const Value& x);  // over the last dimension
// Dimensions count from 0, or from the last as -1.
TRIREME_API Value transpose(const Value& x, int first, int second);             // the two change places
TRIREME_API Value permute(const Value& x, const std::vector<int>& dimensions);  // dimension i is x's dimensions[i]
TRIREME_API Value slice(const Value& x, int dimension, std::int64_t begin, std::int64_t end);
TRIREME_API Value concat(const std::vector<Value>& values, int dimension);
// Equal parts, one after another along the dimension.
TRIREME_API std::vector<Value> split(const Value& x, std::int64_t parts, int dimension = -1);
// Without the dimension.
TRIREME_API Value sum(const Value& x, int dimension);
TRIREME_API Value mean(const Value& x, int dimension);
// b has a's shape or the last dimensions of it, over which it is repeated.
TRIREME_API Value operator+(const Value& a, const Value& b);
TRIREME_API Value operator-(const Value& a, const Value& b);
TRIREME_API Value operator*(const Value& a, const Value& b);
TRIREME_API Value operator*(const Value& a, double factor);
TRIREME_API Value operator*(double factor, const Value& a);

// Losses: means over the whole batch of an update, however it is cut. Without targets, what they would have judged.

// -log p(target), where x [..., width] times weight [vocab, width] are the logits, which never exist as a whole.
TRIREME_API Value linear_cross_entropy(const Builder& b, const Value& x, const Value& targets, std::int64_t vocab,
                                       double deviation = 0.02);
// The same with a weight of your own, such as the embedding's.
TRIREME_API Value linear_cross_entropy(const Builder& b, const Value& x, const Value& targets, const Value& weight);
// The same from logits [..., classes]. A negative target is left out.
TRIREME_API Value cross_entropy(const Builder& b, const Value& logits, const Value& targets);
TRIREME_API Value squared_error(const Builder& b, const Value& x, const Value& target);
TRIREME_API Value mean_absolute_error(const Builder& b, const Value& x, const Value& target);
// A loss of your own: the mean of x [rows, …] over the whole batch.
TRIREME_API Value batch_mean(const Builder& b, const Value& x);

}  // namespace trireme
