#include "trireme/ops/attention/cached_attention.h"

#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

AttentionShape shape_of_new_rows(Inputs inputs, const ir::Attributes& attributes) {
  const AttentionShape s = attention_shape(inputs, {{"causal", true}, {"scale", attributes.real("scale")}});
  if (s.keys != s.queries) fail("k must have the {} rows of q, got {}", s.queries, inputs[1].str());
  return s;
}

TensorType cache_type(const AttentionShape& s, std::int64_t rows, DType dtype) {
  return {dtype, {s.batch, s.key_heads, rows, s.dim}};
}

}  // namespace

TensorType attention_cache_type(Inputs operands, std::int64_t rows) {
  return cache_type(attention_shape(operands, {{"causal", true}, {"scale", 0.0}}), rows, operands[0].dtype);
}

ir::OpDef cached_attention_def() {
  ir::OpDef def;
  def.name = "cached_attention";
  def.operands = {
      {"q"}, {.name = "k", .optional = true}, {.name = "v", .optional = true}, {"k_cache"}, {"v_cache"}, {"position"}};
  def.attributes = {{"scale", 0.0}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    const AttentionShape s = shape_of_new_rows(inputs, attributes);
    if (inputs[3].shape.rank() != 4) fail("'k_cache' must be [b,g,n,d], got {}", inputs[3].str());
    const TensorType cache = cache_type(s, inputs[3].shape[2], inputs[0].dtype);
    if (cache.shape[2] < s.queries) fail("'k_cache' has no room for {} rows: {}", s.queries, inputs[3].str());
    expect_type(inputs[3], cache, "k_cache");
    expect_type(inputs[4], cache, "v_cache");
    expect_type(inputs[5], {DType::i32, {}}, "position");
    return {{inputs[0].dtype, {s.batch, s.queries, s.heads, s.dim}}, cache, cache};
  };
  def.no_gradient = "sequences grow one piece at a time only outside training";
  def.factors = [](Inputs inputs, Inputs, const ir::Attributes& attributes) {
    const AttentionShape s = shape_of_new_rows(inputs, attributes);
    const std::string rows = s.packed ? "b s! three! h d!, -, -" : "b s! h d!, b s! h d!, b s! h d!";
    const std::string cache = "b h n! d!";
    return ir::parse_factors(rows + ", " + cache + ", " + cache + ", - -> b s! h d!, " + cache + ", " + cache);
  };
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes& attributes) -> ir::Cost {
    // As if the cache were full: the most it can take.
    AttentionShape s = shape_of_new_rows(inputs, attributes);
    s.keys = inputs[3].shape[2];
    ir::Cost cost;
    cost.flops = 4 * s.visible_pairs() * static_cast<double>(s.dim);
    for (const TensorType& type : inputs)
      if (type.present) cost.bytes_read += static_cast<double>(type.bytes());
    cost.bytes_written = 3 * static_cast<double>(outputs[0].bytes());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{1, 3}, {2, 4}};
  on_cpu(def, prepare_cached_attention_cpu, cached_attention_workspace_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
