#include "trireme/cli/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "trireme/cli/preparation.h"
#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/schedule.h"
#include "trireme/train/statistics_warning.h"

namespace trireme::cli {
namespace {

// What a run computes, on one rank.
train::Config on_one_rank(const train::Trainer& t) {
  train::Config config = t.config();
  config.parallel = {};
  config.runtime.threads = 0;
  config.runtime.link = "";
  // The same rows, as one replica counts them: batch statistics and the scales of fp8 are those of a micro-batch.
  config.train.micro_batch = t.compiled().micro_rows;
  config.memory.limit = {};  // of each rank; one has the work of all
  if (config.memory.activations == train::Activations::sharded) config.memory.activations = "full";
  return config;
}

// How far apart the losses of the same steps may be when only the order of sums differs. With fewer bits every rank
// rounds its term of a sum.
double close_losses(const train::Config& config) {
  switch (config.train.precision.kind()) {
    case train::Precision::f32: return 1e-4;
    case train::Precision::tf32: return 1e-3;
    case train::Precision::bf16:
    case train::Precision::fp16: return 1e-2;
    case train::Precision::fp8: break;
  }
  return 5e-2;
}

// How far a number is from the next one, of itself, in what the products of a run are computed in.
double last_digit(const train::Config& config) {
  switch (config.train.precision.kind()) {
    case train::Precision::f32: return 0x1p-23;
    case train::Precision::tf32:
    case train::Precision::fp16: return 0x1p-10;
    case train::Precision::bf16: return 0x1p-7;
    case train::Precision::fp8: break;
  }
  return 0x1p-3;
}

// Moves every weight up or down by that much of itself; `draw` says which way.
void move_weights(train::Trainer& t, std::uint64_t draw) {
  const double digit = last_digit(t.config());
  for (const ir::State& state : t.compiled().saved_states()) {
    if (!state.trained || state.type.dtype != DType::f32) continue;
    std::vector<std::byte> bytes = t.session().state(state.name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    SplitMix random(site_of(state.name) + draw);
    for (float& v : values)
      v = static_cast<float>(static_cast<double>(v) * (random.next() % 2 == 0 ? 1 + digit : 1 - digit));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    t.session().write_state(state.name, 0, bytes);
  }
  t.session().refresh_copies();
}

// The rows of each micro-batch in another order: the same sums and statistics, added up otherwise.
void permute_rows(data::Batch& batch, std::int64_t micro_rows, SplitMix& random) {
  std::vector<std::size_t> from(static_cast<std::size_t>(batch.rows));
  std::iota(from.begin(), from.end(), std::size_t{0});
  const auto micro = static_cast<std::size_t>(micro_rows);
  for (std::size_t first = 0; first < from.size(); first += micro)
    for (std::size_t left = std::min(micro, from.size() - first); left > 1; --left)
      std::swap(from[first + left - 1], from[first + random.next() % left]);
  const auto apply = [&](auto& values, bool by_rows) {
    if (!by_rows) return;
    const auto before = values;
    const std::size_t each = values.size() / from.size();
    for (std::size_t row = 0; row < from.size() && each > 0; ++row)
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(from[row] * each), each,
                  values.begin() + static_cast<std::ptrdiff_t>(row * each));
  };
  data::each_values(batch, apply);
  apply(batch.narrow_images, true);
}

// Of the first steps of a run.
std::vector<double> losses_on_one_rank(const train::Config& config, std::int64_t steps, const train::Registry& registry,
                                       const Probe& probe = {}) {
  train::TrainerOptions options;
  options.write = false;
  train::Trainer one(config, registry, options);
  one.start();
  if (probe.kind == Probe::Kind::weights) move_weights(one, probe.draw);
  SplitMix random(probe.draw);
  data::Loader loader = one.batches();
  std::vector<double> losses;
  for (std::int64_t i = 0; i < steps; ++i) {
    const double rate = train::learning_rate(one.config(), i);
    if (probe.kind == Probe::Kind::rows) {
      data::Batch batch = loader.next();
      permute_rows(batch, one.compiled().micro_rows, random);
      losses.push_back(static_cast<double>(one.session().step(batch, i, rate, config.train.seed).loss));
    } else {
      losses.push_back(static_cast<double>(one.session().step(loader.next(), i, rate, config.train.seed).loss));
    }
  }
  return losses;
}

Verdict compared(const train::Trainer& several, const train::Outcome& outcome, std::int64_t steps,
                 const train::Registry& registry) {
  const std::vector<std::string> others = other_mathematics(several);
  const train::Config one = on_one_rank(several);
  const std::vector<double> losses =
      losses_on_one_rank(one, std::min<std::int64_t>(steps, std::ssize(outcome.losses)), registry);
  if (!others.empty())
    return {Verdict::Kind::open, fmt::format("losses differ by at most {:.0e}; {} makes them others",
                                             largest_difference(losses, outcome.losses), fmt::join(others, ", "))};
  const double close = close_losses(one);
  const Verdict verdict = judge(losses, outcome.losses, close);
  if (verdict.kind == Verdict::Kind::equal || !std::isfinite(largest_difference(losses, outcome.losses)))
    return verdict;
  std::vector<Probe::Kind> kinds = {Probe::Kind::weights};
  if (one.model.dropout == 0) kinds.push_back(Probe::Kind::rows);  // random numbers of a row go with its place
  return judge_by_probes(losses, outcome.losses, close, kinds, [&](const Probe& probe) {
    return losses_on_one_rank(one, std::ssize(losses), registry, probe);
  });
}

}  // namespace

std::vector<std::string> other_mathematics(const train::Trainer& t) {
  const train::ParallelConfig& p = t.config().parallel;
  std::vector<std::string> keys;
  if (p.compress != train::Compress::none) keys.emplace_back("parallel.compress");
  if (!t.compiled().synchronous() && !t.compiled().asynchronous_pipeline())
    keys.push_back(train::extra_ranks_keys().front());
  if (t.compiled().asynchronous_pipeline()) keys.emplace_back("parallel.pipeline");
  if (p.stage_dtype != train::StageDtype::same && t.compiled().plan.stages() > 1)
    keys.emplace_back("parallel.stage_dtype");
  // What is saved, and so rounded, follows from what is recomputed, which is decided for the mesh.
  if (t.compiled().plan.activations && t.compiled().plan.recompute) keys.emplace_back("memory.activations");
  if (t.compiled().plan.own_statistics && train::has_batch_norms(t.compiled())) keys.emplace_back("train.batch_stats");
  return keys;
}

// The run is done and saved, whatever becomes of the comparison.
Verdict replay(const train::Trainer& several, const train::Outcome& outcome, std::int64_t steps,
               const train::Registry& registry) {
  const Preparation preparation("replaying the first steps on one rank");
  try {
    Verdict verdict = compared(several, outcome, steps, registry);
    verdict.text = fmt::format("first {} steps replayed on one rank: {}",
                               std::min<std::int64_t>(steps, std::ssize(outcome.losses)), verdict.text);
    return verdict;
  } catch (const Error& e) {
    return {Verdict::Kind::open, fmt::format("not replayed on one rank: {}", e.message())};
  }
}

}  // namespace trireme::cli
