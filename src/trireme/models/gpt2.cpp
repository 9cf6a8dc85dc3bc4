#include <cmath>

#include "trireme/core/error.h"
#include "trireme/models/layers.h"
#include "trireme/models/model.h"

namespace trireme::models {
namespace {

using ir::Builder;
using ir::Value;

// As Hugging Face's GPT2LMHeadModel: learned positions, pre-norm blocks, GELU by tanh, the head tied to the embedding.
Value build_gpt2(const Builder& b, const Batch& in, const ModelConfig& c) {
  const std::int64_t sequence = in.tokens.shape()[1];
  const std::int64_t head_dim = c.head_dim > 0 ? c.head_dim : c.width / c.heads;
  const Builder wte = b.scope("wte");
  const LinearOptions plain{.bias = true, .deviation = c.init_std};
  const LinearOptions into_residual{.bias = true,
                                    .deviation = c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers))};

  const Value starts = document_starts(b.here(in.tokens), c.document_end);
  const Value table = b.scope("wpe").parameter("weight", {c.context, c.width}, ir::Init::normal(c.init_std));
  const Value positions = ir::apply1("sequence_slice", {table}, {{"extent", sequence}});
  Value x = add(embedding(wte, in.tokens, c.vocab, c.width, c.init_std), positions);
  x = dropout(b.scope("embed_dropout"), x, c.dropout);
  for (int i = 0; i < c.layers; ++i) {
    const Builder k = b.scope("blocks", i);
    const Builder a = k.scope("attn");
    const Value qkv = linear(a.scope("qkv"), layer_norm(k.scope("ln1"), x, c.norm_eps), {3, c.heads, head_dim}, plain);
    const Value heads = attend(a.here(qkv), {}, {}, starts);
    const Value mixed = linear(a.scope("proj"), reshape(heads, in.tokens.shape() + Shape{c.heads * head_dim}),
                               {c.width}, into_residual);
    x = add(k.here(x), dropout(a.scope("dropout"), mixed, c.dropout));
    const Builder m = k.scope("mlp");
    const Value up = gelu_tanh(linear(m.scope("up"), layer_norm(k.scope("ln2"), x, c.norm_eps), {c.ffn}, plain));
    const Value down = linear(m.scope("down"), up, {c.width}, into_residual);
    x = add(k.here(x), dropout(m.scope("dropout"), down, c.dropout));
  }
  x = layer_norm(b.scope("ln_f"), x, c.norm_eps);
  const bool tied = c.tie_embeddings.value_or(true);
  const Value head =
      (tied ? wte : b.scope("head")).parameter("weight", {c.vocab, c.width}, ir::Init::normal(c.init_std));
  return linear_cross_entropy(b.scope("head"), x, head, in.targets);
}

void resolve_gpt2(ModelConfig& c, const OptionNames& names) {
  check_heads(c, names);
  if (c.kv_heads != 0 && c.kv_heads != c.heads)
    refuse("{} = {}: gpt2 has as many key heads as heads ({}); use {} = \"llama\"", names.kv_heads, c.kv_heads, c.heads,
           names.family);
  if (c.ffn == 0) c.ffn = 4 * c.width;
}

}  // namespace

Model gpt2() { return {"gpt2", build_gpt2, false, resolve_gpt2}; }

}  // namespace trireme::models
