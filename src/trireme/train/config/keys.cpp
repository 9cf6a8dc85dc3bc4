#include "trireme/train/config/keys.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "trireme/core/text.h"
#include "trireme/data/image_dataset.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/loss_scale.h"

namespace trireme::train {
namespace {

Rule any() { return {}; }
Rule positive() { return {.low = 0, .above_low = true}; }
Rule at_least(double low) { return {.low = low}; }
Rule between(double low, double high) { return {.low = low, .high = high}; }
// A size of something in memory: no product of a few of them overflows.
Rule dimension(double low) { return between(low, 0x7fffffff); }
Rule below(double low, double high) { return {.low = low, .high = high, .below_high = true}; }
Rule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Rule text(bool (*valid)(std::string_view), std::string_view expects) { return {.valid = valid, .expects = expects}; }

bool valid_mesh(std::string_view value) { return parse_mesh_axes(value).has_value(); }

bool valid_offload(std::string_view value) {
  if (value == "none" || value == "all") return true;
  const std::array<std::string_view, 3> parts = {"activations", "weights", "optimizer"};
  const std::vector<std::string> given = split(value, ',');
  return std::all_of(given.begin(), given.end(), [&](const std::string& part) {
    return std::find(parts.begin(), parts.end(), trim(part)) != parts.end();
  });
}

// "1GB/s,20us"
bool valid_link(std::string_view value) {
  if (value.empty()) return true;
  const std::vector<std::string> parts = split(value, ',');
  if (parts.size() != 2) return false;
  const std::string_view rate = trim(parts[0]);
  const auto bytes = rate.ends_with("/s") ? parse_bytes(rate.substr(0, rate.size() - 2)) : std::nullopt;
  return bytes && *bytes > 0 && parse_duration(parts[1]);
}

bool valid_augment(std::string_view value) { return value == "auto" || data::parse_augmentation(value).has_value(); }
bool valid_staging(std::string_view value) { return value == "auto" || parse_bytes(value).has_value(); }

bool valid_tokenizer(std::string_view value) { return value == "bytes" || value == "none" || value.ends_with(".json"); }

}  // namespace

std::optional<std::vector<std::pair<std::string, std::int64_t>>> parse_mesh_axes(std::string_view value) {
  std::vector<std::pair<std::string, std::int64_t>> axes;
  if (value == "auto" || value.empty()) return axes;
  for (const std::string& part : split(value, ',')) {
    const std::string_view item = trim(part);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string name(trim(item.substr(0, equals)));
    const std::string_view size = trim(item.substr(equals + 1));
    std::int64_t extent = 0;
    if (size != "*") {
      const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), extent);
      if (error != std::errc() || end != size.data() + size.size() || extent < 1) return std::nullopt;
    }
    const bool repeated = std::any_of(axes.begin(), axes.end(),
                                      [&](const auto& a) { return a.first == name || (a.second == 0 && extent == 0); });
    if (repeated || std::find(ir::kAxes.begin(), ir::kAxes.end(), name) == ir::kAxes.end()) return std::nullopt;
    axes.emplace_back(name, extent);
  }
  return axes;
}

std::vector<Key> keys_of(Config& c, const models::Families& families) {
  const std::string from_family = "0: the family's rule";
  return {
      {"model.family", &c.model.family, one_of(families.names()), "kind of model"},
      {"model.layers", &c.model.layers, dimension(1), "blocks; of a resnet its depth (18, 34, …)"},
      {"model.width", &c.model.width, dimension(1), "features per position; of a convolutional net the first channels"},
      {"model.heads", &c.model.heads, dimension(1), "attention heads"},
      {"model.kv_heads", &c.model.kv_heads, dimension(0), "heads of keys and values (llama); 0: as many as heads"},
      {"model.head_dim", &c.model.head_dim, dimension(0), "features per head (llama); 0: width / heads"},
      {"model.ffn", &c.model.ffn, dimension(0), "features inside the feed-forward block; " + from_family},
      {"model.context", &c.model.context, dimension(1), "tokens per sequence"},
      {"model.max_context", &c.model.max_context, dimension(0),
       "positions an export states, where training uses fewer (llama); 0: context, or what init.from has"},
      {"model.vocab", &c.model.vocab, dimension(0), "tokens there are; 0: from the tokenizer"},
      {"model.dropout", &c.model.dropout, below(0, 1), "share of activations dropped in training"},
      {"model.tie_embeddings", &c.model.tie_embeddings, any(),
       "output weights = embedding; auto: as the family has it"},
      {"model.norm_eps", &c.model.norm_eps, positive(), "epsilon of the normalisations"},
      {"model.init_std", &c.model.init_std, positive(), "deviation of the weights' first values (gpt2, llama)"},
      {"model.rope_theta", &c.model.rope_theta, positive(), "base of the rotary embedding (llama)"},
      {"model.rope_scaling", &c.model.rope_scaling, one_of({"none", "linear", "llama3"}), "rotary scaling (llama)"},
      {"model.rope_factor", &c.model.rope_factor, positive(), "factor of the rotary scaling"},
      {"model.rope_low", &c.model.rope_low, positive(), "low frequency factor of llama3's scaling"},
      {"model.rope_high", &c.model.rope_high, positive(), "high frequency factor of llama3's scaling"},
      {"model.rope_original", &c.model.rope_original, dimension(1), "context before llama3's scaling"},
      {"model.classes", &c.model.classes, dimension(2), "classes of images"},
      {"model.image", &c.model.image, dimension(1), "height and width of images; image files say it themselves"},
      {"model.channels", &c.model.channels, dimension(1), "channels of images"},

      {"init.from", &c.init.from, any(), "Hugging Face folder to start from; the model's shape comes from it too"},

      {"data.text", &c.data.text, any(),
       "text files, folders or globs, the default being the C++ headers wherever the compiler keeps them; \"path@0.7\" "
       "gives a mixing weight"},
      {"data.tokens", &c.data.tokens, any(),
       "token files or globs instead of text: raw, llm.c's or Megatron's; \"path@0.7\" gives a mixing weight"},
      {"data.token_type", &c.data.token_type, one_of({"auto", "uint16", "uint32"}),
       "of raw token files; auto: uint16 if vocab <= 65536, else uint32"},
      {"data.tokenizer", &c.data.tokenizer, text(valid_tokenizer, "\"bytes\" or a tokenizer.json"),
       "bytes | a tokenizer.json; none: of init.from, where it has no tokenizer that can be read"},
      {"data.images", &c.data.images, any(),
       "\"synthetic\", or a folder, file or glob of IDX (MNIST), CIFAR-10 or CIFAR-100 files"},
      {"data.augment", &c.data.augment, text(valid_augment, "auto, none, or some of crop,flip"),
       "changes to training images: auto (crop,flip for CIFAR, else none) | none | any of crop,flip"},
      {"data.order", &c.data.order, one_of({"shuffled", "sequential"}),
       "sample i reads context+1 tokens from i*context; sequential takes i = step*batch + row"},
      {"data.eval", &c.data.eval, any(), "held-out files of the same kind"},
      {"data.holdout", &c.data.holdout, below(0, 1),
       "share held out when eval is empty: whole files of text, the tail of tokens; 0: none"},

      {"train.steps", &c.train.steps, at_least(0), "updates"},
      {"train.batch", &c.train.batch, dimension(1), "sequences or images in one update, over all ranks"},
      {"train.micro_batch", &c.train.micro_batch, dimension(0),
       "rows per pass through a replica; 0: its whole share, or enough micro-batches for the pipeline"},
      {"train.optimizer", &c.train.optimizer, one_of({"adamw", "sgd"}), "update rule"},
      {"train.lr", &c.train.lr, positive(), "peak learning rate"},
      {"train.min_lr", &c.train.min_lr, at_least(0), "learning rate the schedule ends at"},
      {"train.warmup", &c.train.warmup, at_least(0), "steps from 0 to lr"},
      {"train.schedule", &c.train.schedule, one_of({"cosine", "linear", "constant", "wsd:FRACTION"}),
       "learning rate over time"},
      {"train.decay_steps", &c.train.decay_steps, at_least(0), "length of the schedule; 0: steps"},
      {"train.momentum", &c.train.momentum, below(0, 1), "of sgd"},
      {"train.eval_every", &c.train.eval_every, at_least(0), "steps between evaluations; 0: at the end"},
      {"train.max_time", &c.train.max_time, any(), "\"3h50m\": checkpoint, then stop cleanly; \"\": no limit"},
      {"train.weight_decay", &c.train.weight_decay, at_least(0), "decoupled, on tensors of two or more dimensions"},
      {"train.betas", &c.train.betas, below(0, 1), "of adamw"},
      {"train.eps", &c.train.eps, positive(), "of adamw"},
      {"train.clip", &c.train.clip, at_least(0), "largest global gradient norm; 0: off"},
      {"train.precision", &c.train.precision, one_of({"f32", "tf32", "bf16", "fp16", "fp8"}),
       "of the arithmetic; weights and optimizer stay f32"},
      {"train.loss_scale", &c.train.loss_scale, between(passes::LossScale::kLowest, passes::LossScale::kHighest),
       "fp16: what the loss is multiplied by at first; halved by a step that overflows, whose update is skipped"},
      {"train.loss_scale_window", &c.train.loss_scale_window, between(1, 1 << 24),
       "fp16: good steps in a row after which the scale doubles"},
      {"train.seed", &c.train.seed, at_least(0), "of everything random"},

      {"parallel.mesh", &c.parallel.mesh,
       text(valid_mesh, "\"auto\" or axes such as \"pp=2,dp=2,tp=2\" (pp, dp, tp, h, w; one may be \"*\")"),
       "auto: dp over the ranks there are; or \"pp=2,dp=2,tp=2\"; the last axis is the most adjacent ranks"},
      {"parallel.stages", &c.parallel.stages, at_least(1), "layers per pipeline stage; []: balanced by cost"},
      {"parallel.zero", &c.parallel.zero, between(0, 3),
       "what is cut over dp: optimizer (1), gradients (2), weights (3)"},
      {"parallel.sequence", &c.parallel.sequence, any(), "sequence parallelism over tp"},
      {"parallel.pipeline", &c.parallel.pipeline,
       one_of({"sequential", "gpipe", "1f1b", "interleaved:V", "zero-bubble", "pipedream", "pipedream-2bw"}),
       "order of a pipeline's work"},
      {"parallel.bucket", &c.parallel.bucket, any(), "gradients that travel together"},
      {"parallel.overlap", &c.parallel.overlap, any(), "communicate while computing"},
      {"parallel.allreduce", &c.parallel.allreduce,
       one_of({"auto", "native", "sequential", "parallel", "ring", "recursive", "tree"}), "algorithm"},
      {"parallel.compress", &c.parallel.compress,
       one_of({"none", "bf16", "int8", "onebit", "topk:FRACTION", "powersgd:RANK"}), "gradients on the wire"},
      {"parallel.error_feedback", &c.parallel.error_feedback, any(),
       "compress: what a step loses is added to the next one's gradients"},
      {"parallel.momentum_masking", &c.parallel.momentum_masking, any(),
       "topk: what is sent starts again without momentum, as Deep Gradient Compression has it"},
      {"parallel.compress_warmup", &c.parallel.compress_warmup, at_least(0),
       "first steps of topk and onebit that compress nothing yet; 0: a quarter of all, and train.warmup"},
      {"parallel.server", &c.parallel.server, one_of({"none", "sync", "async", "ssp:S"}), "parameter server"},
      {"parallel.servers", &c.parallel.servers, at_least(1), "server ranks, on top of the mesh"},
      {"parallel.timeout", &c.parallel.timeout, any(), "a wait longer than this is reported and ends the run"},
      {"parallel.seeds", &c.parallel.seeds, any(), "shardings by parameter name: \"*.up.weight\" = \"out:tp\""},

      {"memory.remat", &c.memory.remat, one_of({"none", "every:K", "sqrt", "selective", "optimal", "full"}),
       "what backward computes again instead of keeping"},
      {"memory.offload", &c.memory.offload, text(valid_offload, "none, all, or some of activations,weights,optimizer"),
       "none | all | any of activations,weights,optimizer"},
      {"memory.offload_policy", &c.memory.offload_policy, one_of({"all", "conv", "dynamic"}),
       "which activations leave: all, what convolutions read, or those whose copies the computation hides"},
      {"memory.offload_tier", &c.memory.offload_tier, one_of({"auto", "host", "disk"}),
       "where they go; auto: host for a GPU, disk for a CPU"},
      {"memory.offload_update", &c.memory.offload_update, one_of({"device", "host"}),
       "of a GPU's optimizer states on the host: through the GPU in pieces, or by the host's cores, where gradients go "
       "out "
       "and weights come back"},
      {"memory.offload_dir", &c.memory.offload_dir, any(),
       "folder on the disk for them, best a fast local one; \"\": the run folder; nothing stays there"},
      {"memory.activations", &c.memory.activations, one_of({"full", "bf16", "int8"}),
       "how activations are kept from forward to backward; int8: a scale for every 64 values"},
      {"memory.limit", &c.memory.limit, any(), "\"8GiB\": what a device may use; \"\": what it has"},

      {"runtime.device", &c.runtime.device, one_of({"auto", "cpu", "cuda"}), "where to compute"},
      {"runtime.threads", &c.runtime.threads, between(0, 4096), "compute threads per rank; 0: cores shared out"},
      {"runtime.transport", &c.runtime.transport, one_of({"auto", "threads", "mpi", "nccl"}), "between ranks"},
      {"runtime.link", &c.runtime.link, text(valid_link, "a rate and a latency such as \"1GB/s,20us\""),
       "emulated link of the threads transport: \"1GB/s,20us\""},
      {"runtime.weight_gradients", &c.runtime.weight_gradients, one_of({"auto", "beside", "in_line"}),
       "on a stream of their own, or where they stand; auto: beside on a GPU, for text"},
      {"runtime.trace", &c.runtime.trace, any(), "file: Chrome trace of the run"},

      {"output.dir", &c.output.dir, any(), "run folder; \"\": runs/<name>, then -2, -3 …"},
      {"output.checkpoint_every", &c.output.checkpoint_every, any(),
       "steps (a number) or a time; always at the end; 0: only at the end"},
      {"output.keep", &c.output.keep, at_least(1), "checkpoints kept"},
      {"output.staging", &c.output.staging, text(valid_staging, "auto or a size such as 64MiB"),
       "memory in which a checkpoint waits for the disk while training goes on; auto: all that is saved, or what "
       "memory.limit leaves"},
      {"output.log_every", &c.output.log_every, at_least(1), "steps between metrics lines"},
  };
}

}  // namespace trireme::train
