#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/train/compression.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/server_options.h"

namespace trireme::train {
namespace {

// Values that exist in the language of configurations but not yet in this version: for each key, what there is.
// Shrinks to nothing as the techniques arrive.
struct Available {
  std::string_view key;
  std::vector<std::string> values;  // as to_text prints them
};

std::vector<Available> available() {
  return {
      {"train.precision", {"\"f32\"", "\"tf32\"", "\"bf16\"", "\"fp16\""}},
  };
}

std::vector<std::pair<std::string, std::int64_t>> mesh_axes(const Config& config) {
  return parse_mesh_axes(config.parallel.mesh).value();
}

std::int64_t axis(const Config& config, std::string_view name) {
  for (const auto& [axis_name, size] : mesh_axes(config))
    if (axis_name == name) return size;
  return 1;
}

void check_available(Config config) {
  const std::vector<Available> table = available();
  for (const Key& key : keys_of(config))
    for (const Available& entry : table) {
      if (entry.key != key.name) continue;
      const std::string value = to_text(key);
      if (std::find(entry.values.begin(), entry.values.end(), value) == entry.values.end())
        refuse("not available in this version: {} = {} (available: {})", key.name, value,
               fmt::join(entry.values, ", "));
    }
  for (const auto& [name, size] : mesh_axes(config)) {
    if (name != ir::kDataAxis && name != ir::kTensorAxis && name != ir::kPipelineAxis && size > 1)
      refuse("not available in this version: parallel.mesh = \"{}\" (available: pp, dp and tp)", config.parallel.mesh);
  }
}

// Images or tokens, as the family reads.
void check_data(const Config& config, bool images) {
  const data::DataConfig& data = config.data;
  if (images && data.images.empty())
    refuse("model.family = \"{}\" learns from images: set data.images, for example to \"synthetic\"",
           config.model.family);
  if (!images && !data.images.empty())
    refuse("model.family = \"{}\" learns from tokens and cannot read data.images = \"{}\"; mlp, convnet and resnet can",
           config.model.family, data.images);
  if (images) return;
  if (!data.tokens.empty() && data.text != data::DataConfig{}.text && !data.text.empty())
    refuse("data.text and data.tokens cannot both be given; choose one");
}

void check_training(const Config& config) {
  const TrainConfig& train = config.train;
  if (train.min_lr > train.lr) refuse("train.min_lr = {} must not be above train.lr = {}", train.min_lr, train.lr);
  if (train.precision != "fp16")
    for (const char* key : {"train.loss_scale", "train.loss_scale_window"})
      if (config.is_given(key) && value_text(config, key) != value_text(Config{}, key))
        refuse(
            "{} = {} scales fp16's loss; train.precision = \"{}\" needs none: leave it out, or set train.precision = "
            "\"fp16\"",
            key, value_text(config, key), train.precision);
  const std::int64_t replicas = std::max<std::int64_t>(1, axis(config, ir::kDataAxis));
  if (train.batch % replicas != 0)
    refuse("train.batch = {} must be a multiple of the {} replicas of parallel.mesh = \"{}\"; the nearest is {}",
           train.batch, replicas, config.parallel.mesh,
           std::max<std::int64_t>(1, (train.batch + replicas / 2) / replicas) * replicas);
  const std::int64_t share = train.batch / replicas;
  if (train.micro_batch != 0 && share % train.micro_batch != 0)
    refuse("train.micro_batch = {} must divide {} rows ({}); the nearest that does is {}", train.micro_batch, share,
           replicas == 1 ? "train.batch" : "a replica's share of train.batch",
           nearest_divisor(share, train.micro_batch));
  if (train.eval_every > 0 && config.data.eval.empty() && config.data.holdout <= 0)
    refuse("train.eval_every = {} needs held-out data: set data.holdout or data.eval", train.eval_every);
}

// "topk:0.01" → "topk"
std::string kind_of(const std::string& value) { return value.substr(0, value.find(':')); }

void check_compression(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::string given = fmt::format("parallel.compress = \"{}\"", parallel.compress);
  if (parallel.compress == "none") {
    if (parallel.compress_warmup > 0)
      refuse("parallel.compress_warmup = {} belongs to compressed gradients; parallel.compress is \"none\"",
             parallel.compress_warmup);
    if (config.is_given("parallel.error_feedback") && !parallel.error_feedback)
      refuse("parallel.error_feedback = false belongs to compressed gradients; parallel.compress is \"none\"");
    if (parallel.momentum_masking)
      refuse("parallel.momentum_masking belongs to compressed gradients; parallel.compress is \"none\"");
    return;
  }
  const std::string kind = kind_of(parallel.compress);
  const bool adamw = config.train.optimizer == "adamw";
  if (kind == "topk" && adamw)
    refuse(
        "{} keeps the momentum of sgd on each rank; set train.optimizer = \"sgd\", or parallel.compress = \"onebit\"",
        given);
  if (kind == "onebit" && adamw && compression_warmup(config) == 0)
    refuse("{} with adamw needs steps in which the variance is learned: set parallel.compress_warmup or train.warmup",
           given);
  if (parallel.compress_warmup > 0 && kind != "topk" && kind != "onebit")
    refuse("parallel.compress_warmup = {} is for \"topk\" and \"onebit\"; {} compresses from the start",
           parallel.compress_warmup, given);
  if (parallel.momentum_masking && kind != "topk")
    refuse("parallel.momentum_masking is for \"topk\"; {} sends something of every element", given);
  // Of "auto" it is known when the ranks are.
  if (axis(config, ir::kDataAxis) == 1 && parallel.mesh != "auto")
    refuse("{} needs gradients that travel, and parallel.mesh = \"{}\" has one rank; \"dp=2\" is the least", given,
           parallel.mesh);
  if (parallel.zero > 0)
    refuse(
        "{} does not go with parallel.zero = {}: each rank would need only its part of the sum; set parallel.zero = 0, "
        "or parallel.compress = \"none\"",
        given, parallel.zero);
  if (parallel.server != "none")
    refuse("{} does not go with parallel.server = \"{}\", which has no sums over ranks; set parallel.server = \"none\"",
           given, parallel.server);
  if (const std::string& offload = config.memory.offload; offload != "none" && offload != "activations")
    refuse(
        "{} does not go with memory.offload = \"{}\", whose update goes piece by piece; the nearest is \"activations\"",
        given, offload);
}

void check_offload(const Config& config) {
  const MemoryConfig& memory = config.memory;
  if (memory.offload_update != "host") return;
  const std::string given = "memory.offload_update = \"host\"";
  const std::vector<std::string> kinds = split(memory.offload, ',');
  if (memory.offload != "all" &&
      std::none_of(kinds.begin(), kinds.end(), [](const std::string& kind) { return trim(kind) == "optimizer"; }))
    refuse(
        "{} updates optimizer states that have left the GPU, and memory.offload = \"{}\" keeps them; the nearest is {}",
        given, memory.offload,
        memory.offload == "none" ? "\"optimizer\"" : fmt::format("\"{},optimizer\"", memory.offload));
  if (memory.offload_tier == "disk")
    refuse("{} needs the states in the host's memory, and memory.offload_tier = \"disk\"; the nearest is \"host\"",
           given);
}

void check_parallel(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t pp = axis(config, ir::kPipelineAxis);
  if (!parallel.stages.empty() && pp > 0 && static_cast<std::int64_t>(parallel.stages.size()) != pp)
    refuse("parallel.stages lists {} stages, but parallel.mesh = \"{}\" has {}", parallel.stages.size(), parallel.mesh,
           pp);
  std::int64_t layers = 0;
  for (const std::int64_t stage : parallel.stages) layers += stage;
  if (!parallel.stages.empty() && layers != config.model.layers)
    refuse("parallel.stages add up to {} layers, but model.layers = {}", layers, config.model.layers);
  const bool in_parts = (parallel.zero == 1 || parallel.zero == 2) && axis(config, ir::kDataAxis) > 1;
  for (const std::string& kind : split(config.memory.offload, ','))
    if (const std::string_view moved = trim(kind); in_parts && (moved == "weights" || moved == "all"))
      refuse(
          "memory.offload = \"{}\" moves weights of which parallel.zero = {} updates a part in place: offload "
          "\"activations,optimizer\", or set parallel.zero to 0 or 3",
          config.memory.offload, parallel.zero);
  if (parallel.timeout.count <= 0) refuse("parallel.timeout must be a time such as \"60s\", above zero");
  if (parallel.bucket.count == 0) refuse("parallel.bucket must be a size such as \"25MiB\", above zero");
}

}  // namespace

void check(const Config& config, const models::Families& families) {
  check_available(config);
  const models::Model& model = families.at(config.model.family);
  check_data(config, model.images);
  models::ModelConfig shape = config.model;
  model.resolve(shape);
  check_training(config);
  check_offload(config);
  check_parallel(config);
  check_compression(config);
  check_server(config);
}

}  // namespace trireme::train
