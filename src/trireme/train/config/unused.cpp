#include <algorithm>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/models/families.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

struct Unused {
  bool when = false;
  std::string_view reason;
  std::vector<std::string_view> keys;
};

std::vector<Unused> table(const Config& c, const models::Families& families, int ranks) {
  const std::string& family = c.model.family;
  // What a family of the user's own makes of the keys is not known.
  const bool ours = models::builtin_families().find(family) != nullptr;
  const bool images = families.at(family).images;
  const bool adamw = c.train.optimizer == Optimizer::adamw;
  return {
      {ours && family != "llama",
       "is for model.family = \"llama\"",
       {"model.max_context", "model.rope_theta", "model.rope_scaling", "model.rope_factor", "model.rope_low",
        "model.rope_high", "model.rope_original"}},
      {family == "llama" && c.model.rope_scaling == "none",
       "is for model.rope_scaling, which is \"none\"",
       {"model.rope_factor", "model.rope_low", "model.rope_high", "model.rope_original"}},
      {family == "llama" && c.model.rope_scaling == "linear",
       "is for model.rope_scaling = \"llama3\"",
       {"model.rope_low", "model.rope_high", "model.rope_original"}},
      // Folders of GPT-2s say what follows from their width.
      {family == "gpt2" && c.model.head_dim * c.model.heads != c.model.width,
       "is for model.family = \"llama\"",
       {"model.head_dim"}},
      {ours && family != "gpt2", "is for model.family = \"gpt2\"", {"model.dropout"}},
      {family == "mlp", "is for models that normalise", {"model.norm_eps"}},
      {ours && family != "convnet" && family != "resnet", "is for models with batch norms", {"train.batch_stats"}},
      {ours && images,
       "is for models of text",
       {"model.heads", "model.kv_heads", "model.head_dim", "model.ffn", "model.context", "model.vocab",
        "model.tie_embeddings", "model.init_std"}},
      {ours && !images, "is for models of images", {"model.classes", "model.image", "model.channels"}},
      {images, "is for text", {"data.text", "data.tokens", "data.token_type", "data.tokenizer"}},
      {!images, "is for images", {"data.augment"}},
      {!images && c.data.tokens.empty(), "is for data.tokens", {"data.token_type"}},
      {!c.data.eval.empty() && c.data.holdout > 0,
       "is for runs whose held-out data data.eval does not name",
       {"data.holdout"}},
      {adamw, "is for train.optimizer = \"sgd\"", {"train.momentum"}},
      {!adamw, "is for train.optimizer = \"adamw\"", {"train.betas", "train.eps"}},
      {c.train.schedule == Schedule::constant,
       "has no part in train.schedule = \"constant\"",
       {"train.min_lr", "train.decay_steps"}},
      {c.memory.offload.none(),
       "is for memory.offload, which is \"none\"",
       {"memory.offload_tier", "memory.offload_dir"}},
      {!c.memory.offload.activations,
       "is for activations, which memory.offload does not name",
       {"memory.offload_policy"}},
      {c.parallel.mesh.find("pp=") == std::string::npos,
       "is for several pipeline stages, and parallel.mesh has no pp",
       {"parallel.pipeline", "parallel.stages"}},
      {c.parallel.mesh.find("tp=") == std::string::npos,
       "is for tensor parallelism, and parallel.mesh has no tp",
       {"parallel.sequence", "parallel.async_tp"}},
      {ranks == 1,
       "is for several ranks, and this run has one",
       {"parallel.zero", "parallel.allreduce", "parallel.bucket", "parallel.overlap", "runtime.link",
        "train.batch_stats"}},
  };
}

}  // namespace

std::vector<std::string> keys_without_effect(const Config& config, const models::Families& families, int ranks) {
  std::vector<std::string> found;
  for (const Unused& unused : table(config, families, ranks))
    for (const std::string_view key : unused.keys) {
      // Values as they are by default are no wish of anyone's: a run's own config.toml names every key.
      if (!unused.when || !config.is_given(std::string(key))) continue;
      const std::string value = value_text(config, key);
      if (value == value_text(Config{}, key) || value == "[]" || value == "\"\"") continue;
      found.push_back(fmt::format("{} = {} has no effect: it {}", key, value, unused.reason));
    }
  return found;
}

}  // namespace trireme::train
