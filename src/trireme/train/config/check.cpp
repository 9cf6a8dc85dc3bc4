#include <algorithm>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/core/text.h"
#include "trireme/core/why_not.h"
#include "trireme/ir/axes.h"
#include "trireme/models/families.h"
#include "trireme/passes/named_dimensions.h"
#include "trireme/planner/stages.h"
#include "trireme/train/compression.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/distil.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/prune.h"
#include "trireme/train/quantization.h"

namespace trireme::train {
namespace {

std::vector<std::pair<std::string, std::int64_t>> mesh_axes(const Config& config) {
  return parse_mesh_axes(config.parallel.mesh).value();
}

std::int64_t axis(const Config& config, std::string_view name) {
  for (const auto& [axis_name, size] : mesh_axes(config))
    if (axis_name == name) return size;
  return 1;
}

// Images or tokens, as the family reads.
void check_data(const Config& config, bool images) {
  const data::DataConfig& data = config.data;
  if (images && data.images.empty())
    refuse("model.family = \"{}\" learns from images: set data.images, for example to \"synthetic\"",
           config.model.family);
  if (!images && !data.images.empty())
    refuse(
        "model.family = \"{}\" learns from tokens and cannot read data.images = \"{}\" ({}): set data.text or "
        "data.tokens "
        "instead",
        config.model.family, data.images,
        models::builtin_families().find(config.model.family) == nullptr
            ? "a family that is added with Reads::images can"
            : "mlp, convnet and resnet can");
  if (images) return;
  if (!data.tokens.empty() && data.text != data::DataConfig{}.text && !data.text.empty())
    refuse("data.text and data.tokens cannot both be given; choose one");
}

// The mesh with so many replicas, and without the axes that `leaves` names. 0: as many as there are.
std::string mesh_with_replicas(const Config& config, std::int64_t replicas, bool (*leaves)(std::string_view axis)) {
  const std::string own = fmt::format("dp={}", replicas == 0 ? "*" : std::to_string(replicas));
  std::vector<std::string> axes;
  bool named = false;
  for (const auto& [name, size] : mesh_axes(config)) {
    const bool is_data = name == ir::kDataAxis;
    if (is_data)
      axes.push_back(own);
    else if (size != 1 && !leaves(name))
      axes.push_back(fmt::format("{}={}", name, size == 0 ? "*" : std::to_string(size)));
    named = named || is_data;
  }
  if (!named) axes.insert(axes.begin(), own);
  return fmt::format("{}", fmt::join(axes, ","));
}

// The most replicas, up to so many, that have equal shares of the batch, which micro-batches that are given divide. 0:
// as many as there are.
std::int64_t replicas_for(const Config& config, std::int64_t most) {
  const std::int64_t rows = std::max<std::int64_t>(1, config.train.micro_batch);
  while (most > 1 && config.train.batch % (most * rows) != 0) --most;
  return most;
}

// Spatial axes shard what a model of images has.
void check_spatial(const Config& config, bool images) {
  std::int64_t replicas = axis(config, ir::kDataAxis);  // 0: as many as there are
  bool any = false;
  for (const auto& [name, size] : mesh_axes(config))
    if (ir::is_spatial(name) && size != 1) {
      replicas *= size;
      any = true;
    }
  if (!any || images) return;
  refuse(
      "parallel.mesh = \"{}\": h and w shard the heights and widths of images, and model.family = \"{}\" has none; the "
      "nearest is \"{}\"",
      config.parallel.mesh, config.model.family,
      mesh_with_replicas(config, replicas_for(config, replicas), ir::is_spatial));
}

void check_training(const Config& config) {
  const TrainConfig& train = config.train;
  if (train.min_lr > train.lr)
    refuse("train.min_lr = {} must not be above train.lr = {}; the nearest is {}", train.min_lr, train.lr, train.lr);
  if (train.precision != Precision::fp16)
    for (const char* key : {"train.loss_scale", "train.loss_scale_window"})
      if (config.is_given(key) && value_text(config, key) != value_text(Config{}, key))
        refuse(
            "{} = {} scales fp16's loss; train.precision = \"{}\" needs none: leave it out, or set train.precision = "
            "\"fp16\"",
            key, value_text(config, key), train.precision);
  const std::int64_t replicas = std::max<std::int64_t>(1, axis(config, ir::kDataAxis));
  const auto nearest_multiple = [&](std::int64_t unit) {
    return std::max<std::int64_t>(1, (train.batch + unit / 2) / unit) * unit;
  };
  if (train.batch % replicas != 0 && !config.run.empty())
    refuse("parallel.mesh = \"{}\": {} replicas cannot have equal shares of train.batch = {}; the nearest is \"{}\"",
           config.parallel.mesh, replicas, train.batch,
           mesh_with_replicas(config, replicas_for(config, replicas), [](std::string_view) { return false; }));
  if (train.batch % replicas != 0) {
    // Micro-batches that are given divide it too, or go with it.
    std::int64_t batch = nearest_multiple(replicas * std::max<std::int64_t>(1, train.micro_batch));
    std::string rows;
    if (batch > 2 * train.batch && train.micro_batch > 0) {
      batch = nearest_multiple(replicas);
      rows = fmt::format(" with train.micro_batch = {}", nearest_divisor(batch / replicas, train.micro_batch));
    }
    refuse("train.batch = {} must be a multiple of the {} replicas of parallel.mesh = \"{}\"; the nearest is {}{}",
           train.batch, replicas, config.parallel.mesh, batch, rows);
  }
  const std::int64_t share = train.batch / replicas;
  if (train.micro_batch != 0 && share % train.micro_batch != 0)
    refuse("train.micro_batch = {} must divide {} rows ({}); the nearest that does is {}", train.micro_batch, share,
           replicas == 1 ? "train.batch" : "a replica's share of train.batch",
           nearest_divisor(share, train.micro_batch));
  // A folder of images may have files of its own for tests; if not, that is refused where it is opened.
  const bool may_have_tests = !config.data.images.empty() && config.data.images != "synthetic";
  if (train.eval_every > 0 && config.data.eval.empty() && config.data.holdout <= 0 && !may_have_tests)
    refuse("train.eval_every = {} needs held-out data: set data.holdout or data.eval", train.eval_every);
}

void check_compression(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::string given = fmt::format("parallel.compress = \"{}\"", parallel.compress);
  if (parallel.compress == Compress::none) {
    if (parallel.compress_warmup > 0)
      refuse(
          "parallel.compress_warmup = {} belongs to compressed gradients, and parallel.compress is \"none\"; the "
          "nearest is 0",
          parallel.compress_warmup);
    if (config.is_given("parallel.error_feedback") && !parallel.error_feedback)
      refuse(
          "parallel.error_feedback = false belongs to compressed gradients, and parallel.compress is \"none\"; the "
          "nearest is true");
    if (parallel.momentum_masking)
      refuse(
          "parallel.momentum_masking = true belongs to compressed gradients, and parallel.compress is \"none\"; the "
          "nearest is false");
    return;
  }
  const Compress kind = parallel.compress.kind();
  const bool adamw = config.train.optimizer == Optimizer::adamw;
  if (kind == Compress::topk && adamw)
    refuse(
        "{} keeps the momentum of sgd on each rank, and train.optimizer = \"adamw\"; the nearest is "
        "parallel.compress = \"onebit\", or train.optimizer = \"sgd\"",
        given);
  if (kind == Compress::onebit && adamw && compression_warmup(config) == 0)
    refuse(
        "{} with adamw needs steps in which the variance is learned; the nearest is parallel.compress_warmup = {}, or "
        "train.warmup",
        given, std::max<std::int64_t>(1, config.train.steps / 10));
  if (parallel.compress_warmup > 0 && kind != Compress::topk && kind != Compress::onebit)
    refuse(
        "parallel.compress_warmup = {} is for \"topk\" and \"onebit\"; {} compresses from the start; the nearest is 0",
        parallel.compress_warmup, given);
  if (parallel.momentum_masking && kind != Compress::topk)
    refuse(
        "parallel.momentum_masking = true is for \"topk\"; {} sends something of every element; the nearest is false",
        given);
  // Of "auto" it is known when the ranks are.
  if (axis(config, ir::kDataAxis) == 1 && !parallel.any_mesh())
    refuse("{} is for gradients that replicas sum, and parallel.mesh = \"{}\" has one replica; the nearest is \"{}\"",
           given, parallel.mesh, mesh_with_replicas(config, 2, [](std::string_view) { return false; }));
}

void check_offload(const Config& config) {
  const MemoryConfig& memory = config.memory;
  if (memory.offload_update != OffloadUpdate::host) return;
  const std::string given = "memory.offload_update = \"host\"";
  if (!memory.offload.optimizer)
    refuse(
        "{} updates optimizer states that have left the GPU, and memory.offload = \"{}\" keeps them; the nearest is {}",
        given, memory.offload,
        memory.offload.none() ? "\"optimizer\"" : fmt::format("\"{},optimizer\"", memory.offload));
  if (memory.offload_tier == OffloadTier::disk)
    refuse("{} needs the states in the host's memory, and memory.offload_tier = \"disk\"; the nearest is \"host\"",
           given);
}

bool is_input(const std::string& name) { return name == "tokens" || name == "targets" || name == "images"; }

// What parallel.sharding says can be read, whatever the mesh has: "dimension:axis" and several of them by commas.
void check_sharding(const Config& config) {
  static const std::vector<std::string> axes = {ir::kDataAxis, ir::kTensorAxis, ir::kHeightAxis, ir::kWidthAxis};
  static const std::vector<std::string> dimensions = {"out",     "in",   "vocab",  "batch", "sequence",
                                                      "feature", "head", "height", "width", "channel"};
  for (const auto& [pattern, sharding] : config.parallel.sharding) {
    const std::string given = fmt::format("parallel.sharding: \"{}\" = \"{}\"", pattern, sharding);
    for (const std::string& part : split(sharding, ',')) {
      const std::vector<std::string> pair = split(trim(part), ':');
      if (pair.size() != 2)
        refuse("{} is not a sharding; expected \"dimension:axis\"; the nearest is {}", given,
               passes::proposed_sharding(nearest(trim(part), dimensions).value_or(is_input(pattern) ? "batch" : "out"),
                                         config.parallel.mesh));
      const std::string dimension(trim(pair[0])), axis(trim(pair[1]));
      const bool number = !dimension.empty() && dimension.find_first_not_of("0123456789") == std::string::npos;
      if (!number && std::find(dimensions.begin(), dimensions.end(), dimension) == dimensions.end())
        refuse("{}: there is no dimension '{}'; there are {} and numbers; the nearest is \"{}\"", given, dimension,
               fmt::join(dimensions, ", "), nearest(dimension, dimensions).value_or("out"));
      if (axis == ir::kPipelineAxis)
        refuse("{}: stages of {} have layers of their own and share out no tensor; the nearest is {}", given, axis,
               passes::proposed_sharding(dimension, config.parallel.mesh));
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
        const auto meant = nearest(axis, axes);
        refuse("{}: a mesh has no axis '{}'; there are {}; the nearest is {}", given, axis, fmt::join(axes, ", "),
               passes::proposed_sharding(dimension, config.parallel.mesh, meant ? *meant : ir::kTensorAxis));
      }
    }
  }
}

// The number of heads nearest to what there is that so many ranks share and the model takes. Weights that are there
// already have as many as they have.
std::optional<std::int64_t> heads_for(const Config& config, const models::Model& model, std::int64_t heads,
                                      std::int64_t tp) {
  std::optional<std::int64_t> best;
  if (!config.run.empty() || !config.init.from.empty()) return best;
  for (std::int64_t other = tp; other <= 2 * (heads + tp); other += tp) {
    models::ModelConfig shape = config.model;
    shape.heads = other;
    if (!why_not([&] { model.resolve(shape, config.names); }).empty()) continue;
    if (!best || std::abs(other - heads) < std::abs(*best - heads)) best = other;
  }
  return best;
}

// Heads are sharded whole: each rank along tp has as many of them.
void check_heads_of_ranks(const Config& config, const models::ModelConfig& shape, const models::Model& model) {
  const std::int64_t tp = axis(config, ir::kTensorAxis);
  const bool ours = models::builtin_families().find(config.model.family) != nullptr;
  if (!ours || model.images || tp <= 1 || !config.parallel.sharding.empty() || shape.heads % tp == 0) return;
  const std::int64_t positions = config.parallel.sequence ? shape.context : 0;
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh_axes(config))
    axes.push_back(fmt::format("{}={}", name,
                               name == ir::kTensorAxis
                                   ? std::to_string(nearest_divisor(std::gcd(shape.heads, positions), tp))
                               : size == 0 ? "*"
                                           : std::to_string(size)));
  // Other heads do not help where the positions are sharded too, and cannot be.
  const auto heads = positions % tp == 0 ? heads_for(config, model, shape.heads, tp) : std::nullopt;
  refuse(
      "parallel.mesh = \"{}\": tp shares out whole heads, and {} ranks cannot have as many each of model.heads = {}; "
      "the nearest is \"{}\"{}",
      config.parallel.mesh, tp, shape.heads, fmt::join(axes, ","),
      heads ? fmt::format(", or model.heads = {}", *heads) : "");
}

// Positions are sharded in equal parts: gathers and sums over the sequence have one size.
// Inputs by names of one's own have positions that no key knows.
void check_positions_of_ranks(const Config& config, const models::ModelConfig& shape, const models::Model& model) {
  const std::int64_t tp = axis(config, ir::kTensorAxis);
  if (!config.parallel.sequence || model.images || !model.inputs.empty() || tp <= 1 || shape.context % tp == 0) return;
  // A run that is there keeps its context.
  const std::string context =
      config.run.empty() ? fmt::format("model.context = {}, or ", std::max<std::int64_t>(1, shape.context / tp) * tp)
                         : "";
  refuse(
      "parallel.sequence = true: {} ranks along tp cannot have equal shards of model.context = {}; the nearest is "
      "{}parallel.sequence = false",
      tp, shape.context, context);
}

void check_parallel(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t pp = axis(config, ir::kPipelineAxis);
  // A file has as many chunks as it says.
  const bool interleaved = parallel.pipeline == Pipeline::interleaved;
  const std::int64_t chunks = interleaved ? static_cast<std::int64_t>(parallel.pipeline.argument()) : 1;
  // How many layers can be cut apart is the model's to say: of a resnet, its blocks (planner/stages.cpp asks for them).
  // A transformer's are those of its configuration.
  const bool counted = config.model.family == "gpt2" || config.model.family == "llama";
  std::int64_t layers = 0;
  constexpr std::int64_t kMaxLayers = 1'000'000;
  for (const std::int64_t stage : parallel.stages) {
    if (stage > kMaxLayers)
      refuse("parallel.stages has a chunk of {} layers, and no model has more than {}", stage, kMaxLayers);
    layers += stage;
  }
  if (!parallel.stages.empty() && pp > 0 && parallel.pipeline != Pipeline::file &&
      static_cast<std::int64_t>(parallel.stages.size()) != pp * chunks) {
    if (pp == 1)
      refuse(
          "parallel.stages lists {} stage{}, and parallel.mesh = \"{}\" has no {}; the nearest is parallel.stages = "
          "[], "
          "or {}={} in parallel.mesh",
          parallel.stages.size(), parallel.stages.size() == 1 ? "" : "s", parallel.mesh, ir::kPipelineAxis,
          ir::kPipelineAxis, std::max<std::int64_t>(2, std::ssize(parallel.stages) / chunks));
    refuse("parallel.stages lists {} stage{}, but parallel.mesh = \"{}\" has {}{}; the nearest is {}",
           parallel.stages.size(), parallel.stages.size() == 1 ? "" : "s", parallel.mesh, pp,
           interleaved ? fmt::format(" of {} chunks each: {} numbers are needed", chunks, pp * chunks) : "",
           planner::even_stages(counted ? config.model.layers : layers, pp * chunks));
  }
  if (parallel.timeout.count <= 0) refuse("parallel.timeout must be a time such as \"60s\", above zero");
  if (parallel.bucket.count == 0) refuse("parallel.bucket must be a size such as \"25MiB\", above zero");
}

// An export states the larger of the two.
void check_context(const Config& config) {
  const models::ModelConfig& m = config.model;
  if (m.family != "llama" || m.max_context == 0 || m.max_context >= m.context) return;
  refuse("model.max_context = {} is less than {} = {}; give at least that, or leave it out", m.max_context,
         config.names.context, m.context);
}

}  // namespace

void check_heads(const Config& config, const models::Families& families) {
  const models::Model& model = families.at(config.model.family);
  models::ModelConfig shape = config.model;
  model.resolve(shape, config.names);
  check_heads_of_ranks(config, shape, model);
}

void check_positions(const Config& config, const models::Families& families) {
  const models::Model& model = families.at(config.model.family);
  models::ModelConfig shape = config.model;
  model.resolve(shape, config.names);
  check_positions_of_ranks(config, shape, model);
}

void check(const Config& config, const models::Families& families) {
  const models::Model& model = families.at(config.model.family);
  check_context(config);
  check_data(config, model.images);
  check_spatial(config, model.images || !model.inputs.empty());
  check_quantization(config, model.images);
  models::ModelConfig shape = config.model;
  model.resolve(shape, config.names);
  check_sharding(config);
  check_heads_of_ranks(config, shape, model);
  check_positions_of_ranks(config, shape, model);
  check_training(config);
  check_offload(config);
  check_parallel(config);
  check_extra_ranks(config);
  check_compression(config);
  check_pruning(config);
  check_distillation(config);
}

}  // namespace trireme::train
