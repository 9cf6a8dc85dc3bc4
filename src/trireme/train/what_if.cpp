#include "trireme/train/what_if.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/ir/axes.h"
#include "trireme/planner/trials.h"

namespace trireme::train {
namespace {

struct Saving {
  std::vector<std::string> settings;
  bool changes_numbers = false;
};

// As train.micro_batch counts: of one replica.
std::int64_t replica_rows(const Config& config) {
  return micro_batch_rows(config) / mesh_of(config).size_of(ir::kDataAxis);
}

std::int64_t share_of(const Config& config) { return config.train.batch / mesh_of(config).size_of(ir::kDataAxis); }

// The largest divisor of a replica's rows that is at most half of its micro-batch.
std::int64_t half_micro_batch(const Config& config) {
  const std::int64_t share = share_of(config);
  std::int64_t half = std::max<std::int64_t>(1, replica_rows(config) / 2);
  while (share % half != 0) --half;
  return half;
}

std::vector<Saving> savings(const Config& config) {
  std::vector<Saving> all;
  const auto add = [&](const std::string& key, const std::vector<std::string>& values, bool changes_numbers) {
    for (const std::string& value : values)
      if (value_text(config, key) != fmt::format("\"{}\"", value))
        all.push_back({{fmt::format("{}={}", key, value)}, changes_numbers});
  };
  add("memory.remat", {"selective", "sqrt", "full"}, false);
  add("memory.offload", {"activations", "optimizer", "all"}, false);
  if (mesh_of(config).size_of(ir::kTensorAxis) > 1) add("memory.activations", {"sharded"}, false);
  add("memory.activations", {"bf16", "int8"}, true);
  if (config.train.precision == Precision::f32) add("train.precision", {"bf16"}, true);
  if (replica_rows(config) > 1) all.push_back({{fmt::format("train.micro_batch={}", half_micro_batch(config))}, false});
  // Where gradients are sharded, whole ones wait in buckets, and sums of several micro-batches are whole too: there
  // fewer micro-batches and smaller buckets may need less.
  constexpr std::uint64_t kSmallBucket = std::uint64_t{64} << 10;
  const bool sharded = config.parallel.zero >= 2 && config.parallel.bucket.count > kSmallBucket;
  const std::string small = "parallel.bucket=64KiB";
  if (sharded) {
    all.push_back({{"memory.remat=full", small}, false});
    for (std::int64_t rows = share_of(config); rows > 1; rows /= 2)
      if (rows != replica_rows(config) && share_of(config) % rows == 0)
        all.push_back({{fmt::format("train.micro_batch={}", rows), "memory.remat=full", small}, false});
  }
  // What keeps the numbers and goes furthest.
  all.push_back({{"train.micro_batch=1", "memory.remat=full"}, false});
  if (sharded) all.push_back({{"train.micro_batch=1", "memory.remat=full", small}, false});
  all.push_back(
      {{"train.micro_batch=1", "memory.remat=full", "memory.offload=all", "memory.offload_policy=all"}, false});
  if (sharded) {
    all.push_back(all.back());
    all.back().settings.push_back(small);
  }
  return all;
}

WhatIf result_of(const planner::Tried& tried, const Saving& saving) {
  return {.settings = saving.settings,
          .peak = tried.peak,
          .time = tried.seconds,
          .changes_numbers = saving.changes_numbers,
          .refused = tried.refused,
          .tried = tried.tried};
}

// How many of the list are left out, from the first on, so that the rest has at most so many instructions.
std::size_t left_out(const std::vector<Saving>& list, const Config& config, const Compiled& configured,
                     const models::Families& families, double instructions) {
  for (std::size_t i = list.size(); i-- > 0;) {
    Config changed = config;
    for (const std::string& setting : list[i].settings) apply_setting(changed, setting, families);
    const double micro_batches =
        static_cast<double>(micro_batch_rows(config)) / static_cast<double>(micro_batch_rows(changed));
    instructions -= static_cast<double>(configured.checked.instructions) * micro_batches;
    if (instructions < 0) return std::min(i + 1, list.size() - 1);
  }
  return 0;
}

}  // namespace

std::vector<WhatIf> what_if(const Config& config, const Registry& registry, const CompileOptions& options,
                            const Compiled& configured,
                            const std::function<void(std::size_t done, std::size_t total)>& on_one,
                            double instructions) {
  const std::vector<Saving> list = savings(config);
  const auto settle = [&](std::size_t i) {
    Config changed = config;
    for (const std::string& setting : list[i].settings) apply_setting(changed, setting, registry.models);
    changed.memory.limit = {};  // what it needs, whether or not that is allowed
    check(changed, registry.models);
    Planned planned = make_plan(changed, registry, options);
    return planner::Settled{std::move(planned.graphs), std::move(planned.plan)};
  };
  // The last are those that take longest.
  const std::vector<planner::Tried> tried =
      planner::try_plans(list.size(), settle,
                         {.threads = options.threads,
                          .first = left_out(list, config, configured, registry.models, instructions),
                          .on_one = on_one});
  std::vector<WhatIf> results = {result_of(planner::tried(configured), {})};
  for (std::size_t i = 0; i < list.size(); ++i) results.push_back(result_of(tried[i], list[i]));
  const double plain = results.front().time;
  for (WhatIf& r : results)
    if (r.refused.empty()) r.time /= plain;
  return results;
}

}  // namespace trireme::train
