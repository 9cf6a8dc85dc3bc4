#include "trireme/core/error.h"
#include "trireme/models/layers.h"
#include "trireme/models/model.h"

namespace trireme::models {
namespace {

using ir::Builder;
using ir::Value;

Value rotate(const Value& x, const ModelConfig& c) {
  return ir::apply1("rotary", {x},
                    {{"theta", c.rope_theta},
                     {"scaling", c.rope_scaling},
                     {"factor", c.rope_factor},
                     {"low", c.rope_low},
                     {"high", c.rope_high},
                     {"original", c.rope_original}});
}

// As Hugging Face's LlamaForCausalLM: RMS norm, rotary positions, grouped key and value heads, SwiGLU, no biases.
Value build_llama(const Builder& b, const Batch& in, const ModelConfig& c) {
  const LinearOptions plain{.bias = false, .deviation = c.init_std};
  const Value starts = document_starts(b.here(in.tokens), c.document_end);
  const Builder embed = b.scope("embed");
  Value x = embedding(embed, in.tokens, c.vocab, c.width, c.init_std);
  for (int i = 0; i < c.layers; ++i) {
    const Builder k = b.scope("blocks", i);
    const Builder a = k.scope("attn");
    const Value n = rms_norm(k.scope("attn_norm"), x, c.norm_eps);
    const Value q = rotate(linear(a.scope("q"), n, {c.heads, c.head_dim}, plain), c);
    const Value key = rotate(linear(a.scope("k"), n, {c.kv_heads, c.head_dim}, plain), c);
    const Value value = linear(a.scope("v"), n, {c.kv_heads, c.head_dim}, plain);
    const Value heads = attend(a.here(q), key, value, starts);
    x = add(k.here(x), linear_heads(a.scope("o"), heads, c.width, plain));
    const Builder m = k.scope("mlp");
    const Value n2 = rms_norm(k.scope("mlp_norm"), x, c.norm_eps);
    const Value gated = ir::apply1(
        "swiglu", {m.here(linear(m.scope("gate"), n2, {c.ffn}, plain)), linear(m.scope("up"), n2, {c.ffn}, plain)});
    x = add(k.here(x), linear(m.scope("down"), gated, {c.width}, plain));
  }
  x = rms_norm(b.scope("norm"), x, c.norm_eps);
  const bool tied = c.tie_embeddings.value_or(false);
  const Value head =
      (tied ? embed : b.scope("head")).parameter("weight", {c.vocab, c.width}, ir::Init::normal(c.init_std));
  return linear_cross_entropy(b.scope("head"), x, head, in.targets);
}

void resolve_llama(ModelConfig& c, const OptionNames& names) {
  check_heads(c, names);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = c.width / c.heads;
  if (c.head_dim % 2 != 0)
    refuse(
        "{} = \"llama\" rotates pairs of features: the {} features of a head must be even in number ({} = {}, {} = {})",
        names.family, c.head_dim, names.width, c.width, names.heads, c.heads);
  // Two thirds of four times the width, rounded up to a multiple of 32.
  if (c.ffn == 0) c.ffn = (8 * c.width / 3 + 31) / 32 * 32;
}

}  // namespace

Model llama() { return {"llama", build_llama, false, resolve_llama}; }

}  // namespace trireme::models
