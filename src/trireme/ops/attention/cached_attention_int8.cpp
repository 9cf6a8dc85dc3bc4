#include "trireme/ops/attention/cached_attention_int8.h"

#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/attention/cached_attention.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

AttentionShape shape_of_kept_rows(std::span<const TensorType> inputs, const ir::Attributes& attributes) {
  const AttentionShape s = attention_shape(inputs, {{"causal", true}, {"scale", attributes.real("scale")}});
  if (s.keys != s.queries) fail("k must have the {} rows of q, got {}", s.queries, inputs[1].str());
  return s;
}

}  // namespace

TensorType cache_codes(const TensorType& cache) { return {DType::i8, cache.shape}; }
TensorType cache_scales(const TensorType& cache) { return {DType::f32, cache.shape.slice(0, cache.shape.rank() - 1)}; }

ir::OpDef cached_attention_int8_def() {
  ir::OpDef def;
  def.name = "cached_attention_int8";
  def.operands = {{"q"},
                  {.name = "k", .optional = true},
                  {.name = "v", .optional = true},
                  {"k_codes"},
                  {.name = "k_scale", .keep_f32 = true},
                  {"v_codes"},
                  {.name = "v_scale", .keep_f32 = true},
                  {"position"}};
  def.attributes = {{"scale", 0.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const AttentionShape s = shape_of_kept_rows(inputs, attributes);
    if (inputs[3].shape.rank() != 4) fail("'k_codes' must be [b,g,n,d], got {}", inputs[3].str());
    const TensorType cache = attention_cache_type(inputs.first(3), inputs[3].shape[2]);
    if (cache.shape[2] < s.queries) fail("'k_codes' has no room for {} rows: {}", s.queries, inputs[3].str());
    expect_type(inputs[3], cache_codes(cache), "k_codes");
    expect_type(inputs[4], cache_scales(cache), "k_scale");
    expect_type(inputs[5], cache_codes(cache), "v_codes");
    expect_type(inputs[6], cache_scales(cache), "v_scale");
    expect_type(inputs[7], {DType::i32, {}}, "position");
    return {{inputs[0].dtype, {s.batch, s.queries, s.heads, s.dim}}, inputs[3], inputs[4], inputs[5], inputs[6]};
  };
  def.no_gradient = "sequences grow one piece at a time only outside training";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    const AttentionShape s = shape_of_kept_rows(inputs, attributes);
    const std::string rows = s.packed ? "b s! three! h d!, -, -" : "b s! h d!, b s! h d!, b s! h d!";
    const std::string cache = "b h n! d!, b h n!, b h n! d!, b h n!";
    return ir::parse_factors(rows + ", " + cache + ", - -> b s! h d!, " + cache);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                const ir::Attributes& attributes) -> ir::Cost {
    // As if the cache were full: the most it can take.
    AttentionShape s = shape_of_kept_rows(inputs, attributes);
    s.keys = inputs[3].shape[2];
    ir::Cost cost;
    cost.flops = 4 * s.visible_pairs() * static_cast<double>(s.dim);
    for (const TensorType& type : inputs)
      if (type.present) cost.bytes_read += static_cast<double>(type.bytes());
    cost.bytes_written = 2 * static_cast<double>(outputs[0].bytes());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{1, 3}, {2, 4}, {3, 5}, {4, 6}};
  on_cpu(def, prepare_cached_attention_int8_cpu, cached_attention_int8_workspace_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
