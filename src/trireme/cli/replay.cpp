#include "trireme/cli/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

// Of the first steps of a run; with `draw` > 0 from weights that were moved.
std::vector<double> losses_on_one_rank(const train::Config& config, std::int64_t steps, const train::Registry& registry,
                                       std::uint64_t draw = 0) {
  train::TrainerOptions options;
  options.write = false;
  train::Trainer one(config, registry, options);
  one.start();
  if (draw > 0) move_weights(one, draw);
  data::Loader loader = one.batches();
  std::vector<double> losses;
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto result = one.session().step(loader.next(), i, train::learning_rate(one.config(), i), config.train.seed);
    losses.push_back(static_cast<double>(result.loss));
  }
  return losses;
}

// How far apart the losses of one rank are when its weights start in the next digit, by step: the most of a few draws,
// as one may happen to change little.
std::vector<double> own_differences(const train::Config& config, const std::vector<double>& losses,
                                    const train::Registry& registry) {
  constexpr std::uint64_t kDraws = 3;
  std::vector<double> most(losses.size(), 0);
  for (std::uint64_t draw = 1; draw <= kDraws; ++draw) {
    const std::vector<double> moved = losses_on_one_rank(config, std::ssize(losses), registry, draw);
    for (std::size_t i = 0; i < most.size(); ++i) {
      const double difference = std::abs(moved[i] - losses[i]);
      if (!(difference <= most[i])) most[i] = difference;  // what is no number stays
    }
  }
  return most;
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
  return judge(losses, outcome.losses, close, own_differences(one, losses, registry));
}

}  // namespace

std::vector<std::string> other_mathematics(const train::Trainer& t) {
  const train::ParallelConfig& p = t.config().parallel;
  std::vector<std::string> keys;
  if (p.compress != train::Compress::none) keys.emplace_back("parallel.compress");
  if (train::extra_ranks(t.config()) > 0 && !t.compiled().synchronous())
    keys.push_back(train::extra_ranks_keys().front());
  if (t.compiled().asynchronous_pipeline()) keys.emplace_back("parallel.pipeline");
  if (p.stage_dtype != train::StageDtype::same && t.compiled().plan.stages() > 1)
    keys.emplace_back("parallel.stage_dtype");
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
