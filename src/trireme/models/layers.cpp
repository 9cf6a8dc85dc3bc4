#include "trireme/models/layers.h"

#include <cmath>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/ops/shape/reduce.h"

namespace trireme::models {

using ir::apply1;
using ir::Builder;
using ir::Init;
using ir::Value;

namespace {

std::vector<std::int64_t> extents(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Rows of the global batch times what one row holds: losses are sums divided by it.
double global_count(const Builder& b, const Value& targets) {
  const Shape& shape = targets.shape();
  const double per_row = static_cast<double>(shape.elements()) / static_cast<double>(shape[0]);
  const double rows = b.rows_per_step > 0 ? b.rows_per_step : static_cast<double>(shape[0]);
  return rows * per_row;
}

Value contract(const Builder& b, const Value& x, const Shape& out, int contracted, const LinearOptions& options) {
  const Shape& in = x.shape();
  const Shape inner = in.slice(in.rank() - contracted, in.rank());
  const Value weight = b.parameter("weight", out + inner, Init::normal(options.deviation));
  const Value bias = options.bias ? b.bias("bias", out) : Value();
  return apply1(
      "matmul", {b.here(x), weight, bias},
      {{"trans_b", true}, {"a_split", std::int64_t{in.rank() - contracted}}, {"b_split", std::int64_t{out.rank()}}});
}

}  // namespace

Value linear(const Builder& b, const Value& x, const Shape& out, const LinearOptions& options) {
  return contract(b, x, out, 1, options);
}

Value linear_heads(const Builder& b, const Value& x, std::int64_t out, const LinearOptions& options) {
  return contract(b, x, {out}, 2, options);
}

Value embedding(const Builder& b, const Value& tokens, std::int64_t vocab, std::int64_t width, double deviation) {
  return apply1("embedding", {b.here(tokens), b.parameter("weight", {vocab, width}, Init::normal(deviation))});
}

Value layer_norm(const Builder& b, const Value& x, double eps) {
  const std::int64_t width = x.shape().back();
  return apply1("layer_norm", {b.here(x), b.parameter("weight", {width}, Init::constant(1)), b.bias("bias", {width})},
                {{"eps", eps}});
}

Value rms_norm(const Builder& b, const Value& x, double eps) {
  return apply1("rms_norm", {b.here(x), b.parameter("weight", {x.shape().back()}, Init::constant(1))}, {{"eps", eps}});
}

Value batch_norm(const Builder& b, const Value& x, double momentum, double eps) {
  const Shape channels{x.shape().back()};
  const Value mean = b.state("running_mean", {DType::f32, channels}, ir::Category::statistics, {});
  const Value variance = b.state("running_var", {DType::f32, channels}, ir::Category::statistics, Init::constant(1));
  const std::vector<Value> out = ir::apply(
      "batch_norm",
      {b.here(x), b.parameter("weight", channels, Init::constant(1)), b.bias("bias", channels), mean, variance},
      {{"training", b.training}, {"momentum", momentum}, {"eps", eps}});
  if (b.training) {
    b.write(mean, out[3]);
    b.write(variance, out[4]);
  }
  return out[0];
}

Value document_starts(const Value& tokens, std::int64_t end) {
  return end < 0 ? Value() : apply1("document_starts", {tokens}, {{"end", end}});
}

Value attend(const Value& q, const Value& k, const Value& v, const Value& starts) {
  return apply1("attention", {q, k, v, starts});
}

Value dropout(const Builder& b, const Value& x, double p) {
  if (!b.training || p == 0) return x;
  const Value rng = b.input("rng", {DType::i64, {3}});
  return apply1("dropout", {b.here(x), rng}, {{"p", p}, {"site", static_cast<std::int64_t>(site_of(b.path()))}});
}

Value add(const Value& a, const Value& b) { return apply1("add", {a, b}); }
Value relu(const Value& x) { return apply1("relu", {x}); }
Value gelu(const Value& x) { return apply1("gelu", {x}); }
Value gelu_tanh(const Value& x) { return apply1("gelu", {x}, {{"tanh", true}}); }
Value silu(const Value& x) { return apply1("silu", {x}); }
Value reshape(const Value& x, const Shape& shape) { return apply1("reshape", {x}, {{"shape", extents(shape)}}); }

Value conv(const Builder& b, const Value& x, std::int64_t out, const ConvOptions& o) {
  const std::int64_t channels = x.shape().back();
  if (o.groups < 1 || channels % o.groups != 0 || out % o.groups != 0)
    refuse("conv '{}': {} groups do not divide {} input and {} output channels", b.path(), o.groups, channels, out);
  if (o.dilation < 1) refuse("conv '{}': the dilation is {}, and must be at least 1", b.path(), o.dilation);
  const Shape kernel{out, o.kernel, o.kernel, channels / o.groups};
  const std::int64_t reached = out / o.groups * o.kernel * o.kernel;  // outputs, by each input
  const double deviation = std::sqrt(2.0 / static_cast<double>(reached));
  return apply1("conv2d", {b.here(x), b.parameter("weight", kernel, Init::normal(deviation))},
                {{"stride", std::vector<std::int64_t>{o.stride, o.stride}},
                 {"padding", std::vector<std::int64_t>{o.padding, o.padding}},
                 {"dilation", std::vector<std::int64_t>{o.dilation, o.dilation}},
                 {"groups", o.groups}});
}

Value linear_cross_entropy(const Builder& b, const Value& x, const Value& weight, const Value& targets) {
  if (!targets)
    return apply1("matmul", {b.here(x), weight},
                  {{"trans_b", true}, {"a_split", std::int64_t{x.shape().rank() - 1}}, {"b_split", std::int64_t{1}}});
  return apply1("linear_cross_entropy", {b.here(x), weight, targets}, {{"scale", 1.0 / global_count(b, targets)}});
}

Value cross_entropy(const Builder& b, const Value& logits, const Value& targets) {
  if (!targets) return logits;
  return apply1("cross_entropy", {b.here(logits), targets}, {{"scale", 1.0 / global_count(b, targets)}});
}

Value squared_error(const Builder& b, const Value& x, const Value& target) {
  if (!target) return x;
  return apply1("squared_error", {b.here(x), target}, {{"scale", 1.0 / global_count(b, target)}});
}

Value batch_mean(const Builder& b, const Value& x) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(x.shape().rank()));
  std::iota(dims.begin(), dims.end(), 0);
  return apply1("scale", {ops::reduce(b.here(x), dims, "sum", "f32")}, {{"factor", 1.0 / global_count(b, x)}});
}

Value mean_absolute_error(const Builder& b, const Value& x, const Value& target) {
  if (!target) return x;
  return apply1("mean_absolute_error", {b.here(x), target}, {{"scale", 1.0 / global_count(b, target)}});
}

}  // namespace trireme::models
