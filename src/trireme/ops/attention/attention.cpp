#include "trireme/ops/attention/attention.h"

#include <cmath>

#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

TensorType output_type(const AttentionShape& s, DType dtype) { return {dtype, {s.batch, s.queries, s.heads, s.dim}}; }
TensorType lse_type(const AttentionShape& s) { return {DType::f32, {s.batch, s.heads, s.queries}}; }

// The dimensions of q, k?, v?. Sequence and head dimension stay whole. Heads may be sharded: where fewer key heads are
// shared by groups of heads, equal shards of both belong together.
std::string operand_factors(const AttentionShape& s) {
  return s.packed ? "b s! three! h d!, -, -" : "b s! h d!, b t! h d!, b t! h d!";
}

std::string starts_factors(Inputs inputs, std::size_t operand) { return given(inputs, operand) ? ", b s!" : ", -"; }

void expect_starts(Inputs inputs, std::size_t operand, const AttentionShape& s) {
  if (!given(inputs, operand)) return;
  expect_type(inputs[operand], {DType::i32, {s.batch, s.queries}}, "starts");
  if (!s.causal || s.keys != s.queries)
    fail("'starts' goes with causal attention of as many keys as queries, got {} and {}{}", s.keys, s.queries,
         s.causal ? "" : ", causal=false");
}

std::vector<ir::AttributeSpec> attention_attributes() { return {{"causal", true}, {"scale", 0.0}, {"tf32", false}}; }

}  // namespace

double AttentionShape::visible_pairs() const {
  const auto s = static_cast<double>(queries);
  const double per_head = causal ? s * static_cast<double>(shift()) + s * (s + 1) / 2 : s * static_cast<double>(keys);
  return static_cast<double>(batch * heads) * per_head;
}

AttentionShape attention_shape(Inputs inputs, const ir::Attributes& attributes) {
  const TensorType &q = inputs[0], &k = inputs[1], &v = inputs[2];
  expect_compute(q, "q");
  AttentionShape s;
  s.causal = attributes.boolean("causal");
  if (k.present != v.present) fail("k and v must be given together, or neither with a packed q [b,s,3,h,d]");
  s.packed = !k.present;
  if (s.packed) {
    if (q.shape.rank() != 5 || q.shape[2] != 3) fail("without k and v, q must be [b,s,3,h,d], got {}", q.str());
    s.batch = q.shape[0], s.queries = s.keys = q.shape[1], s.heads = s.key_heads = q.shape[3], s.dim = q.shape[4];
  } else {
    if (q.shape.rank() != 4) fail("q must be [b,s,h,d], got {}", q.str());
    if (k.shape.rank() != 4) fail("k must be [b,t,g,d], got {}", k.str());
    s.batch = q.shape[0], s.queries = q.shape[1], s.heads = q.shape[2], s.dim = q.shape[3];
    s.keys = k.shape[1], s.key_heads = k.shape[2];
    expect_type(k, {q.dtype, {s.batch, s.keys, s.key_heads, s.dim}}, "k");
    expect_type(v, k, "v");
  }
  if (s.batch < 1 || s.queries < 1 || s.keys < 1 || s.key_heads < 1 || s.dim < 1)
    fail("attention needs extents of at least 1, got q {} and k {}", q.str(), k.str());
  if (s.heads % s.key_heads != 0)
    fail("the {} heads of q must be a multiple of the {} heads of k", s.heads, s.key_heads);
  if (s.causal && s.keys < s.queries)
    fail("causal attention needs at least as many keys as queries, got {} and {}", s.keys, s.queries);
  const double scale = attributes.real("scale");
  s.scale = static_cast<float>(scale == 0 ? 1 / std::sqrt(static_cast<double>(s.dim)) : scale);
  return s;
}

ir::OpDef attention_def() {
  ir::OpDef def;
  def.name = "attention";
  def.operands = {
      {"q"}, {.name = "k", .optional = true}, {.name = "v", .optional = true}, {.name = "starts", .optional = true}};
  def.attributes = attention_attributes();
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    const AttentionShape s = attention_shape(inputs, attributes);
    expect_starts(inputs, kStarts, s);
    return {output_type(s, inputs[0].dtype), lse_type(s)};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.grad(1)) fail("attention has no gradient for its output lse");
    const auto d = ir::apply(
        "attention_grad", {g.input(0), g.input(1), g.input(2), g.output(0), g.output(1), g.grad(0), g.input(kStarts)},
        {{"causal", g.attributes().boolean("causal")}, {"scale", g.attributes().real("scale")}});
    for (std::size_t i = 0; i < d.size(); ++i) g.set(i, d[i]);
  };
  def.factors = [](Inputs inputs, Inputs, const ir::Attributes& attributes) {
    const AttentionShape s = attention_shape(inputs, attributes);
    return ir::parse_factors(operand_factors(s) + starts_factors(inputs, kStarts) + " -> b s! h d!, b h s!");
  };
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes& attributes) -> ir::Cost {
    const AttentionShape s = attention_shape(inputs, attributes);
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = 4 * s.visible_pairs() * static_cast<double>(s.dim);
    return cost;
  };
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_attention_cpu, attention_workspace_cpu);
  return checked(def);
}

ir::OpDef attention_grad_def() {
  ir::OpDef def;
  def.name = "attention_grad";
  def.operands = {{"q"},
                  {.name = "k", .optional = true},
                  {.name = "v", .optional = true},
                  {"o"},
                  {.name = "lse", .keep_f32 = true},
                  {"do"},
                  {.name = "starts", .optional = true}};
  def.attributes = attention_attributes();
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    const AttentionShape s = attention_shape(inputs, attributes);
    expect_type(inputs[3], output_type(s, inputs[0].dtype), "o");
    expect_type(inputs[4], lse_type(s), "lse");
    expect_type(inputs[5], output_type(s, inputs[0].dtype), "do");
    expect_starts(inputs, kStartsOfGrad, s);
    if (s.packed) return {inputs[0]};
    return {inputs[0], inputs[1], inputs[2]};
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](Inputs inputs, Inputs, const ir::Attributes& attributes) {
    const AttentionShape s = attention_shape(inputs, attributes);
    const std::string results = s.packed ? "b s! three! h d!" : operand_factors(s);
    return ir::parse_factors(operand_factors(s) + ", b s! h d!, b h s!, b s! h d!" +
                             starts_factors(inputs, kStartsOfGrad) + " -> " + results);
  };
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes& attributes) -> ir::Cost {
    const AttentionShape s = attention_shape(inputs, attributes);
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = 10 * s.visible_pairs() * static_cast<double>(s.dim);
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_attention_grad_cpu, attention_grad_workspace_cpu);
  return checked(def);
}

}  // namespace trireme::ops
