#include "trireme/models/layers.h"

#include <trireme/model.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/api/access.h"
#include "trireme/core/error.h"
#include "trireme/ops/attention/softmax.h"
#include "trireme/ops/shape/reduce.h"
#include "trireme/ops/shape/slice.h"
#include "trireme/ops/shape/transpose.h"

namespace trireme {
namespace {

const ir::Builder& in(const Builder& handle) { return Access::unwrap(handle); }
// Of a batch some values are absent; where that may be, the loss is asked for its predictions.
ir::Value maybe(const Value& handle) { return Access::unwrap(handle); }
ir::Value in(const Value& handle) {
  if (!handle)
    refuse(
        "a value that the model computes with is absent: a batch of text has tokens and targets, one of images has "
        "images and labels, others the inputs that their data name, and a prediction is asked for without targets");
  return Access::unwrap(handle);
}
Value out(const ir::Value& value) { return Access::wrap(value); }

// A dimension of x by its number from the front.
int place(const Value& x, int dimension, const char* what) {
  const auto rank = static_cast<int>(x.shape().size());
  if (dimension < -rank || dimension >= rank)
    refuse("{}: there is no dimension {} of {}", what, dimension, in(x).type().str());
  return dimension < 0 ? dimension + rank : dimension;
}

ir::Attributes attributes(const PoolOptions& o) {
  const auto both = [](std::int64_t extent) { return std::vector<std::int64_t>{extent, extent}; };
  return {{"kernel", both(o.kernel)}, {"stride", both(o.stride)}, {"padding", both(o.padding)}};
}

// Whether a value is the result of that op.
bool made_by(const ir::Builder& b, const ir::Value& value, std::string_view op) {
  const std::vector<ir::Node>& nodes = b.graph().nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const ir::Node& node) {
    return node.op->name == op && std::find(node.outputs.begin(), node.outputs.end(), value.id()) != node.outputs.end();
  });
}

void check_attention(const ir::Builder& b, const Shape& shape, const AttentionOptions& o, std::int64_t kv_heads) {
  const std::string& name = b.path();
  if (shape.rank() != 3) refuse("attention '{}' takes [rows, positions, width], got {}", name, shape.str());
  if (o.heads < 1 || shape.back() % o.heads != 0)
    refuse("attention '{}': {} heads do not divide the width {}", name, o.heads, shape.back());
  if (kv_heads < 1 || o.heads % kv_heads != 0)
    refuse("attention '{}': kv_heads = {} does not divide heads = {}", name, kv_heads, o.heads);
  if (o.rotary > 0 && shape.back() / o.heads % 2 != 0)
    refuse("attention '{}': rotary positions turn pairs of features, and a head has {}; set rotary = 0 or other heads",
           name, shape.back() / o.heads);
}

}  // namespace

Value linear(const Builder& b, const Value& x, std::int64_t width, const LinearOptions& o) {
  return out(models::linear(Access::take(b, "linear"), in(x), {width}, {.bias = o.bias, .deviation = o.deviation}));
}

Value embedding(const Builder& b, const Value& tokens, std::int64_t vocab, std::int64_t width, double deviation) {
  return out(models::embedding(Access::take(b, "embedding"), in(tokens), vocab, width, deviation));
}

Value attention(const Builder& builder, const Value& input, const AttentionOptions& o) {
  const ir::Builder& b = Access::take(builder, "attention");
  const ir::Value x = in(input);
  const std::int64_t kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
  check_attention(b, x.shape(), o, kv_heads);
  const std::int64_t width = x.shape().back();
  const std::int64_t features = width / o.heads;
  const models::LinearOptions plain{.bias = false, .deviation = o.deviation};
  ir::Value q = models::linear(b.scope("q"), x, {o.heads, features}, plain);
  ir::Value k = models::linear(b.scope("k"), x, {kv_heads, features}, plain);
  const ir::Value v = models::linear(b.scope("v"), x, {kv_heads, features}, plain);
  if (o.rotary > 0) {
    q = ir::apply1("rotary", {q}, {{"theta", o.rotary}});
    k = ir::apply1("rotary", {k}, {{"theta", o.rotary}});
  }
  if (o.starts && !o.causal)
    refuse("attention '{}': starts goes with causal = true, where a position sees those before it", b.path());
  if (o.starts && !made_by(b, in(o.starts), "document_starts"))
    refuse("attention '{}': starts is what document_starts gives: kernels pass over what lies before it unseen",
           b.path());
  const ir::Value starts = o.starts ? in(o.starts) : ir::Value();
  const ir::Value mixed = ir::apply1("attention", {b.here(q), k, v, starts}, {{"causal", o.causal}});
  return out(models::linear_heads(b.scope("o"), mixed, width, plain));
}

Value document_starts(const Value& tokens, std::int64_t end) {
  if (end < 0) refuse("document_starts: end = {} is no token", end);
  return out(models::document_starts(in(tokens), end));
}

Value layer_norm(const Builder& b, const Value& x, double eps) {
  return out(models::layer_norm(Access::take(b, "layer_norm"), in(x), eps));
}
Value rms_norm(const Builder& b, const Value& x, double eps) {
  return out(models::rms_norm(Access::take(b, "rms_norm"), in(x), eps));
}
Value batch_norm(const Builder& b, const Value& x, double momentum, double eps) {
  return out(models::batch_norm(Access::take_alone(b, "batch_norm"), in(x), momentum, eps));
}
Value dropout(const Builder& b, const Value& x, double p) { return out(models::dropout(in(b), in(x), p)); }

Value conv(const Builder& b, const Value& x, std::int64_t channels, const ConvOptions& o) {
  return out(models::conv(
      Access::take(b, "conv"), in(x), channels,
      {.kernel = o.kernel, .stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups}));
}

Value max_pool(const Value& x, const PoolOptions& o) { return out(ir::apply1("max_pool2d", {in(x)}, attributes(o))); }
Value avg_pool(const Value& x, const PoolOptions& o) { return out(ir::apply1("avg_pool2d", {in(x)}, attributes(o))); }
Value global_avg_pool(const Value& x) { return out(ir::apply1("global_avg_pool", {in(x)})); }

Value relu(const Value& x) { return out(models::relu(in(x))); }
Value gelu(const Value& x) { return out(models::gelu(in(x))); }
Value gelu_tanh(const Value& x) { return out(models::gelu_tanh(in(x))); }
Value silu(const Value& x) { return out(models::silu(in(x))); }
Value swiglu(const Value& gate, const Value& up) { return out(ir::apply1("swiglu", {in(gate), in(up)})); }
Value reshape(const Value& x, const Extents& shape) { return out(models::reshape(in(x), Shape(shape))); }
Value softmax(const Value& x) { return out(ops::softmax(in(x))); }

Value permute(const Value& x, const std::vector<int>& dimensions) {
  std::vector<std::int64_t> perm;
  perm.reserve(dimensions.size());
  for (const int dimension : dimensions) perm.push_back(place(x, dimension, "permute"));
  return out(ops::transpose(in(x), perm));
}

Value transpose(const Value& x, int first, int second) {
  std::vector<int> dimensions(x.shape().size());
  std::iota(dimensions.begin(), dimensions.end(), 0);
  std::swap(dimensions[static_cast<std::size_t>(place(x, first, "transpose"))],
            dimensions[static_cast<std::size_t>(place(x, second, "transpose"))]);
  return permute(x, dimensions);
}

Value slice(const Value& x, int dimension, std::int64_t begin, std::int64_t end) {
  const int at = place(x, dimension, "slice");
  const std::int64_t extent = x.shape()[static_cast<std::size_t>(at)];
  if (begin < 0 || begin >= end || end > extent)
    refuse("slice: [{}, {}) is no part of dimension {}, which has {}", begin, end, dimension, extent);
  return out(ops::slice(in(x), at, begin, end));
}

Value concat(const std::vector<Value>& values, int dimension) {
  if (values.empty()) refuse("concat: there are no values");
  std::vector<ir::Value> all;
  all.reserve(values.size());
  for (const Value& value : values) all.push_back(in(value));
  return out(ops::concat(std::move(all), place(values.front(), dimension, "concat")));
}

std::vector<Value> split(const Value& x, std::int64_t parts, int dimension) {
  const int at = place(x, dimension, "split");
  const std::int64_t extent = x.shape()[static_cast<std::size_t>(at)];
  if (parts < 1 || extent % parts != 0)
    refuse("split: {} parts do not divide dimension {}, which has {}", parts, dimension, extent);
  std::vector<Value> all;
  for (std::int64_t p = 0; p < parts; ++p)
    all.push_back(slice(x, at, p * (extent / parts), (p + 1) * (extent / parts)));
  return all;
}

Value sum(const Value& x, int dimension) { return out(ops::reduce(in(x), {place(x, dimension, "sum")}, "sum")); }
Value mean(const Value& x, int dimension) { return out(ops::reduce(in(x), {place(x, dimension, "mean")}, "mean")); }

Value operator-(const Value& a, const Value& b) { return a + b * -1.0; }
Value operator+(const Value& a, const Value& b) { return out(models::add(in(a), in(b))); }
Value operator*(const Value& a, const Value& b) { return out(ir::apply1("mul", {in(a), in(b)})); }
Value operator*(const Value& a, double factor) { return out(ir::apply1("scale", {in(a)}, {{"factor", factor}})); }
Value operator*(double factor, const Value& a) { return a * factor; }

Value linear_cross_entropy(const Builder& b, const Value& x, const Value& targets, std::int64_t vocab,
                           double deviation) {
  const ir::Builder& head = Access::take(b, "linear_cross_entropy");
  const ir::Value weight = head.parameter("weight", {vocab, in(x).shape().back()}, ir::Init::normal(deviation));
  return out(models::linear_cross_entropy(head, in(x), weight, maybe(targets)));
}
Value linear_cross_entropy(const Builder& b, const Value& x, const Value& targets, const Value& weight) {
  return out(models::linear_cross_entropy(in(b), in(x), in(weight), maybe(targets)));
}
Value cross_entropy(const Builder& b, const Value& logits, const Value& targets) {
  return out(models::cross_entropy(in(b), in(logits), maybe(targets)));
}
Value squared_error(const Builder& b, const Value& x, const Value& target) {
  return out(models::squared_error(in(b), in(x), maybe(target)));
}
Value batch_mean(const Builder& b, const Value& x) {
  const ir::Value value = in(x);
  if (value.shape().rank() == 0) refuse("batch_mean takes a value that has rows, got {}", value.type().str());
  return out(models::batch_mean(in(b), value));
}
Value mean_absolute_error(const Builder& b, const Value& x, const Value& target) {
  return out(models::mean_absolute_error(in(b), in(x), maybe(target)));
}

}  // namespace trireme
