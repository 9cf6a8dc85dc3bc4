#include "trireme/train/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "trireme/core/error.h"
#include "trireme/core/thread_pool.h"
#include "trireme/ir/axes.h"
#include "trireme/planner/predict.h"

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

// The largest divisor of a replica's rows that is at most half of its micro-batch.
std::int64_t half_micro_batch(const Config& config) {
  const std::int64_t share = config.train.batch / mesh_of(config).size_of(ir::kDataAxis);
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
  // What keeps the numbers and goes furthest.
  all.push_back({{"train.micro_batch=1", "memory.remat=full"}, false});
  all.push_back(
      {{"train.micro_batch=1", "memory.remat=full", "memory.offload=all", "memory.offload_policy=all"}, false});
  return all;
}

// Of the roles that take rows: the fullest one's memory, the longest one's time.
WhatIf predicted(const Compiled& compiled) {
  WhatIf result;
  for (const Role& role : compiled.roles) {
    if (role.exchange) continue;
    result.peak = std::max<std::uint64_t>(result.peak, role.arena_bytes);
    result.time = std::max(result.time, planner::nominal_seconds(role.program("step")));
  }
  return result;
}

WhatIf tried(const Config& config, const Registry& registry, const CompileOptions& options, const Saving& saving) {
  WhatIf result;
  try {
    Config changed = config;
    for (const std::string& setting : saving.settings) apply_setting(changed, setting, registry.models);
    changed.memory.limit = {};  // what it needs, whether or not that is allowed
    check(changed, registry.models);
    result = predicted(compile(changed, registry, options));
  } catch (const Error& e) {
    result.refused = e.what();
  }
  result.settings = saving.settings;
  result.changes_numbers = saving.changes_numbers;
  return result;
}

}  // namespace

std::vector<WhatIf> what_if(const Config& config, const Registry& registry, const CompileOptions& options,
                            const Compiled& configured,
                            const std::function<void(std::size_t done, std::size_t total)>& on_one, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Saving> list = savings(config);
  std::vector<WhatIf> results(list.size() + 1);
  results.front() = predicted(configured);
  std::mutex mutex;
  std::size_t begun = 0;
  ThreadPool pool(options.threads);
  pool.run(static_cast<std::int64_t>(list.size()), [&](std::int64_t task) {
    // The last are those that take longest.
    const std::size_t i = list.size() - 1 - static_cast<std::size_t>(task);
    if (on_one) {
      const std::lock_guard lock(mutex);
      on_one(begun++, list.size());
    }
    const std::chrono::duration<double> past = std::chrono::steady_clock::now() - start;
    if (task > 0 && past.count() > seconds)
      results[i + 1] = {.settings = list[i].settings, .refused = "there was no time for it", .tried = false};
    else
      results[i + 1] = tried(config, registry, options, list[i]);
  });
  const double plain = results.front().time;
  for (WhatIf& r : results)
    if (r.refused.empty()) r.time /= plain;
  return results;
}

}  // namespace trireme::train
