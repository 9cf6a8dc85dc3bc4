#include "trireme/train/compression.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/train/schedule.h"

namespace trireme::train {

namespace {

bool has_warmup(Compress kind) { return kind == Compress::topk || kind == Compress::onebit; }

std::int64_t variance_steps(const Config& config, std::int64_t step) {
  const bool keeps_it = config.parallel.compress == Compress::onebit && compresses_later(config);
  return keeps_it ? std::min(step, compression_warmup(config)) : step;
}

bool compresses_something(const ir::Module& module) {
  if (!module.has_graph("update")) return false;
  const std::vector<ir::Node>& nodes = module.graph("update").nodes;
  return std::any_of(nodes.begin(), nodes.end(), [](const ir::Node& node) {
    return node.op->name == "pack" || node.op->name == "take_largest" || node.op->name == "orthonormalise";
  });
}

}  // namespace

std::int64_t compression_warmup(const Config& config) {
  if (config.parallel.compress_warmup > 0) return config.parallel.compress_warmup;
  return std::max(config.train.warmup, planned_steps(config) / 4);
}

bool compresses_later(const Config& config) {
  return has_warmup(config.parallel.compress.kind()) && mesh_of(config).size_of(ir::kDataAxis) > 1;
}

std::int64_t compression_warmup(const Config& config, const Config& before, std::int64_t done) {
  if (done == 0) return compression_warmup(config);
  const std::int64_t asked = config.parallel.compress_warmup;
  if (!compresses_later(before)) {
    const std::int64_t left = std::max<std::int64_t>(0, planned_steps(config) - done) / 4;
    return done + (asked > 0 ? asked : std::max(config.train.warmup - done, left));
  }
  // One of no steps is over as well after the first.
  const std::int64_t had = std::max<std::int64_t>(1, compression_warmup(before));
  if (asked == 0 || (had <= done && asked <= done)) return had;
  return std::max(asked, done);
}

double variance_scale(const Config& config, const Config& saved, std::int64_t step, std::int64_t updates_per_step) {
  if (config.train.optimizer != Optimizer::adamw || saved.train.optimizer != Optimizer::adamw) return 1;
  const std::int64_t now = variance_steps(config, step);
  const std::int64_t then = variance_steps(saved, step);
  if (now == then || now == 0 || then == 0) return 1;
  const auto known = [&](std::int64_t steps) {
    return 1 - std::pow(config.train.betas[1], static_cast<double>(steps * updates_per_step));
  };
  return known(now) / known(then);
}

void drop_replaced_compression(Config& config, const Config& before, const std::set<std::string>& named) {
  const Compress kind = config.parallel.compress.kind();
  if (!named.contains("parallel.compress") || kind == before.parallel.compress.kind()) return;
  const ParallelConfig defaults;
  const auto drop = [&](const char* key, auto member) {
    if (named.contains(key)) return;
    config.parallel.*member = defaults.*member;
    config.given.erase(key);
  };
  if (kind != Compress::topk && kind != Compress::onebit)
    drop("parallel.compress_warmup", &ParallelConfig::compress_warmup);
  if (kind != Compress::topk) drop("parallel.momentum_masking", &ParallelConfig::momentum_masking);
  if (kind == Compress::none) drop("parallel.error_feedback", &ParallelConfig::error_feedback);
}

std::string compression_warning(const Config& config, const Compiled& compiled) {
  if (config.parallel.compress == Compress::none) return {};
  if (std::none_of(compiled.roles.begin(), compiled.roles.end(),
                   [](const Role& role) { return compresses_something(role.module); }))
    return fmt::format(
        "parallel.compress = \"{}\" has no effect: no gradient that it could make smaller is summed over {}. A rank "
        "has "
        "all terms of the gradients of parameters that parallel.sharding annotates over {}, and of all where that axis "
        "shares out no rows; small tensors are communicated as they are",
        config.parallel.compress, ir::kDataAxis, ir::kDataAxis);
  const bool warms_up = has_warmup(config.parallel.compress.kind());
  if (const std::int64_t warmup = warms_up ? compression_warmup(config) : 0; warmup >= config.train.steps && warmup > 0)
    return fmt::format(
        "parallel.compress = \"{}\" has no effect: its warm-up of {} steps is as long as train.steps = {}",
        config.parallel.compress, warmup, config.train.steps);
  if (config.parallel.compress != Compress::onebit || config.train.optimizer != Optimizer::adamw) return {};
  // Steps at the full learning rate after which the variance that is kept was good enough, measured
  // (docs/gradient_compression.md): with fewer, elements that were small until then move too far for ever after.
  constexpr std::int64_t kSteps = 80;
  const std::int64_t least = config.train.warmup + kSteps;
  const std::int64_t warmup = compression_warmup(config);
  if (warmup >= least) return {};
  return fmt::format(
      "parallel.compress = \"onebit\" keeps the variance that AdamW has learned in {} step{} of warm-up, and the loss "
      "may "
      "grow without bound; parallel.compress_warmup = {} (train.warmup and {} more) is the least that is known to go "
      "well",
      warmup, warmup == 1 ? "" : "s", least, kSteps);
}

passes::CompressGradients::Options compression(const Config& config) {
  using Kind = passes::CompressGradients::Kind;
  passes::CompressGradients::Options options;
  const Choice<Compress>& chosen = config.parallel.compress;
  switch (chosen.kind()) {
    case Compress::none: fail("there is no compression to make options of");
    case Compress::bf16: options.kind = Kind::bf16; break;
    case Compress::int8: options.kind = Kind::int8; break;
    case Compress::onebit:
      options.kind = config.train.optimizer == Optimizer::adamw ? Kind::momentum : Kind::onebit;
      break;
    case Compress::topk:
      options.kind = Kind::largest;
      options.fraction = chosen.argument();
      break;
    case Compress::powersgd:
      options.kind = Kind::low_rank;
      options.rank = static_cast<std::int64_t>(chosen.argument());
      break;
  }
  if (options.kind == Kind::largest || options.kind == Kind::onebit || options.kind == Kind::momentum)
    options.warmup = compression_warmup(config);
  options.error_feedback = config.parallel.error_feedback;
  options.momentum_masking = config.parallel.momentum_masking;
  return options;
}

}  // namespace trireme::train
