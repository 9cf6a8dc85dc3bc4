#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

// The shape of a model: section [model] of a configuration. Keys that a family has no use for are ignored by it.
// Zeros mean "the family's own choice", made where the model is built.
struct ModelConfig {
  std::string family = "gpt2";  // gpt2 | llama | mlp | convnet | resnet | one of a registry's own
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: width / heads
  std::int64_t ffn = 0;       // 0: the family's rule
  std::int64_t context = 128;
  std::int64_t max_context = 0;  // positions that the weights know, where training uses fewer (llama); 0: context
  std::int64_t vocab = 0;        // 0: from the tokenizer
  double dropout = 0;
  std::optional<bool> tie_embeddings = {};  // absent: as the family has it
  double norm_eps = 1e-5;
  double init_std = 0.02;
  double rope_theta = 10000;
  std::string rope_scaling = "none";  // none | linear | llama3
  double rope_factor = 1;
  double rope_low = 1;
  double rope_high = 4;
  std::int64_t rope_original = 8192;
  std::int64_t classes = 10;
  std::int64_t image = 32;  // height and width
  std::int64_t channels = 3;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace trireme
