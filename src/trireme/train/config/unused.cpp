#include <algorithm>
#include <set>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/models/families.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/extra_ranks.h"

namespace trireme::train {
namespace {

// Which keys do nothing in which configurations. What check.cpp refuses is not repeated here.
std::vector<WithoutEffect> table(const Config& c, const models::Families& families, int ranks, bool processes) {
  const std::string& family = c.model.family;
  // What a family of the user's own makes of the keys is not known.
  const bool ours = models::builtin_families().find(family) != nullptr;
  const bool images = families.at(family).images;
  const bool adamw = c.train.optimizer == Optimizer::adamw;
  const ir::Mesh mesh = mesh_of(c);
  const auto along = [&](const char* axis) { return mesh.size_of(axis); };
  const bool replicas = along(ir::kDataAxis) > 1;
  // Sums over ranks of which several are made in one message: of gradients, and of what is gathered ahead.
  const bool buckets = replicas || along(ir::kHeightAxis) > 1 || along(ir::kWidthAxis) > 1 || c.parallel.sequence ||
                       c.memory.activations == Activations::sharded;
  const bool shards = std::any_of(c.parallel.sharding.begin(), c.parallel.sharding.end(), [&](const auto& annotation) {
    const std::vector<std::string> parts = split(annotation.second, ',');
    return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return along(std::string(trim(part.substr(std::min(part.size(), part.find(':') + 1)))).c_str()) > 1;
    });
  });
  std::vector<WithoutEffect> all = {
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
      {ours && family != "gpt2", "is for model.family = \"gpt2\"", {"model.dropout"}},
      {family == "mlp", "is for models that normalise", {"model.norm_eps"}},
      {ours && (!images || family == "mlp"), "is for models with batch norm", {"train.batch_stats"}},
      {!c.init.from.empty(), "is for weights that are drawn, and init.from has them", {"model.init_std"}},
      {ours && images,
       "is for models of text",
       {"model.heads", "model.kv_heads", "model.head_dim", "model.ffn", "model.context", "model.vocab",
        "model.document_end", "model.tie_embeddings", "model.init_std"}},
      {ours && !images, "is for models of images", {"model.classes", "model.image", "model.channels"}},
      {images, "is for models of text", {"data.text", "data.tokens", "data.token_type", "data.tokenizer"}},
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
      {!c.memory.offload.none() && c.memory.offload_tier == OffloadTier::host,
       "is for memory.offload_tier = \"disk\"",
       {"memory.offload_dir"}},
      {along(ir::kPipelineAxis) == 1,
       "is for several pipeline stages, and parallel.mesh has no pp",
       {"parallel.pipeline", "parallel.stages", "parallel.stage_dtype"}},
      {along(ir::kTensorAxis) == 1,
       "is for tensor parallelism, and parallel.mesh has no tp",
       {"parallel.sequence", "parallel.async_tp"}},
      {ours && images && along(ir::kTensorAxis) > 1, "is for models of text", {"parallel.sequence"}},
      {ranks > 1 && !replicas, "is for several replicas, and parallel.mesh has no dp", {"parallel.zero"}},
      {ranks > 1 && !replicas && along(ir::kHeightAxis) == 1 && along(ir::kWidthAxis) == 1,
       "is for ranks that have rows or images of their own, and parallel.mesh has no dp, h or w",
       {"train.batch_stats"}},
      {ranks > 1 && !buckets,
       "is for gradients that several ranks sum, and parallel.mesh has no dp",
       {"parallel.bucket"}},
      {c.prune.method != Prune::none && c.prune.schedule != PruneSchedule::iterative,
       "is for prune.schedule = \"iterative\"",
       {"prune.rounds", "prune.rewind"}},
      {c.prune.method != Prune::none && c.prune.schedule != PruneSchedule::gradual,
       "is for prune.schedule = \"gradual\"",
       {"prune.end"}},
      {c.prune.method != Prune::none && c.prune.schedule == PruneSchedule::oneshot,
       "is for several prunings, and prune.schedule is \"oneshot\"",
       {"prune.every"}},
      {ranks > 1 && !shards, "is for axes that parallel.mesh does not have", {"parallel.sharding"}},
      {ranks > 1 && processes, "is for ranks that are threads of one process", {"runtime.link"}},
      {ranks == 1,
       "is for several ranks, and this run has one",
       {"parallel.zero", "parallel.allreduce", "parallel.bucket", "parallel.overlap", "parallel.sharding",
        "parallel.timeout", "runtime.link", "train.batch_stats"}},
  };
  for (WithoutEffect& further : without_effect_by_extra_ranks(c)) all.push_back(std::move(further));
  return all;
}

}  // namespace

std::vector<std::string> model_keys_without_effect(const Config& config, const models::Families& families) {
  std::vector<std::string> found;
  for (const WithoutEffect& unused : table(config, families, 1, false))
    for (const std::string_view key : unused.keys)
      if (unused.when && key.starts_with("model.") && config.is_given(std::string(key))) found.emplace_back(key);
  return found;
}

std::vector<std::string> keys_with_conditions() {
  std::vector<std::string> keys;
  for (const WithoutEffect& unused : table({}, models::builtin_families(), 1, false))
    keys.insert(keys.end(), unused.keys.begin(), unused.keys.end());
  return keys;
}

std::vector<std::string> keys_without_effect(const Config& config, const models::Families& families, int ranks,
                                             bool processes) {
  std::vector<std::string> found;
  std::set<std::string_view> named;
  // What a built-in configuration says is no wish of anyone's either.
  const auto is_wish = [&](std::string_view key) {
    const std::vector<std::string>& own = config.over_builtin;
    return !config.builtin || std::find(own.begin(), own.end(), key) != own.end();
  };
  for (const WithoutEffect& unused : table(config, families, ranks, processes))
    for (const std::string_view key : unused.keys) {
      // Values as they are by default are no wish of anyone's: a run's own config.toml names every key.
      if (!unused.when || !config.is_given(std::string(key)) || !is_wish(key)) continue;
      const std::string value = value_text(config, key);
      if (value == value_text(Config{}, key) || value == "[]" || value == "\"\"" || value.empty()) continue;
      if (!named.insert(key).second) continue;  // one reason is enough
      found.push_back(fmt::format("{} = {} has no effect: it {}", key, in_one_line(value), unused.reason));
    }
  return found;
}

}  // namespace trireme::train
