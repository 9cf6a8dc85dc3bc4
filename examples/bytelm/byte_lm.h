#pragma once
#include <trireme/trireme.h>

// A causal language model over bytes: plain mathematics, no technique.
struct ByteLM {
  int layers = 6, width = 256, vocab = 256;

  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    auto x = embedding(b.scope("embed"), in.tokens, vocab, width);
    for (int i = 0; i < layers; ++i) {
      auto k = b.scope("blocks", i);
      x = x + attention(k.scope("attn"), rms_norm(k.scope("n1"), x), {.heads = 8});
      auto up = linear(k.scope("up"), rms_norm(k.scope("n2"), x), 4 * width);
      x = x + linear(k.scope("down"), gelu(up), width);
    }
    return linear_cross_entropy(b.scope("head"), rms_norm(b.scope("norm"), x), in.targets, vocab);
  }
};

// Trireme's models and this one, by the name "bytelm".
inline tri::Registry registry_with_byte_lm() {
  tri::Registry registry;
  registry.add("bytelm", [](const tri::ModelConfig& c) {
    return ByteLM{static_cast<int>(c.layers), static_cast<int>(c.width), static_cast<int>(c.vocab)};
  });
  return registry;
}
