#include "trireme/cli/techniques.h"

#include <fmt/format.h>

#include <vector>

#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/models/families.h"
#include "trireme/train/compression.h"

namespace trireme::cli {
namespace {

using Words = std::vector<std::string>;

void add_memory(const train::Config& config, Words& words) {
  const train::MemoryConfig& memory = config.memory;
  if (memory.remat != train::Remat::none) words.push_back("remat " + memory.remat.text());
  if (memory.activations == train::Activations::sharded)
    words.emplace_back("saved activations sharded over tp");
  else if (memory.activations != train::Activations::full)
    words.push_back("activations saved in " + memory.activations.text());
  if (!memory.offload.none()) {
    std::string offload = "offload of " + memory.offload.text();
    if (memory.offload.activations && memory.offload_policy != train::OffloadPolicy::dynamic)
      offload += fmt::format(" (policy {})", memory.offload_policy);
    if (memory.offload_update == train::OffloadUpdate::host) offload += ", updated on the host";
    words.push_back(std::move(offload));
  }
  if (memory.limit.count > 0) words.push_back("at most " + format_bytes(memory.limit.count));
}

std::string compression_text(const train::Config& config) {
  const train::ParallelConfig& parallel = config.parallel;
  std::string text = fmt::format("gradients compressed by {}", parallel.compress);
  const bool warms_up = parallel.compress == train::Compress::topk || parallel.compress == train::Compress::onebit;
  if (const std::int64_t warmup = train::compression_warmup(config); warms_up && warmup > 0)
    text += fmt::format(" after {} steps", warmup);
  if (!parallel.error_feedback) text += " without error feedback";
  if (parallel.momentum_masking) text += " with momentum masking";
  return text;
}

void add_communication(const train::Config& config, const train::Compiled& compiled, Words& words) {
  const train::ParallelConfig& parallel = config.parallel;
  const train::ParallelConfig usual;
  if (parallel.compress != train::Compress::none) words.push_back(compression_text(config));
  if (compiled.mesh.size_of(ir::kTensorAxis) > 1) {
    const models::Model* ours = models::builtin_families().find(config.model.family);
    if (parallel.sequence && (ours == nullptr || !ours->images)) words.emplace_back("sequence parallelism");
    if (parallel.async_tp) words.emplace_back("async_tp");
  }
  if (compiled.plan.stages() > 1 && parallel.stage_dtype != train::StageDtype::same)
    words.push_back(fmt::format("{} between stages", parallel.stage_dtype));
  if (compiled.ranks() == 1) return;
  if (!parallel.sharding.empty())
    words.push_back(
        fmt::format("{} sharding annotation{}", parallel.sharding.size(), parallel.sharding.size() == 1 ? "" : "s"));
  if (compiled.replicas > 1 && parallel.bucket.count != usual.bucket.count)
    words.push_back("buckets of " + format_bytes(parallel.bucket.count));
  if (!parallel.overlap) words.emplace_back("communication not overlapped");
  if (parallel.allreduce != train::AllReduce::automatic)
    words.push_back(fmt::format("all-reduce {}", parallel.allreduce));
  if (!config.runtime.link.empty()) words.push_back("emulated link " + config.runtime.link);
}

// What is computed, and not only how.
void add_mathematics(const train::Trainer& t, Words& words) {
  const train::Config& config = t.config();
  if (config.train.quantize != train::TrainedCodes::none)
    words.push_back(fmt::format("weights rounded as {}", config.train.quantize));
  if (config.prune.method != train::Prune::none)
    words.push_back(fmt::format("{} pruning to {:.0f}% zeros ({}, {})", config.prune.method,
                                100 * config.prune.sparsity, config.prune.pattern, config.prune.schedule));
  if (!config.distil.teacher.empty()) words.push_back("taught by " + config.distil.teacher);
  if (t.model().images && t.compiled().ranks() > 1 && config.train.batch_stats == train::BatchStats::local)
    words.emplace_back("batch statistics of each rank alone");
  if (config.runtime.overlap_wgrad.value_or(false)) words.emplace_back("weight gradients on a stream of their own");
}

}  // namespace

std::string techniques(const train::Trainer& trainer) {
  Words words;
  add_mathematics(trainer, words);
  add_communication(trainer.config(), trainer.compiled(), words);
  add_memory(trainer.config(), words);
  std::string text;
  for (const std::string& word : words) text += ", " + word;
  return text;
}

}  // namespace trireme::cli
