#include "trireme/train/compression.h"

#include <algorithm>
#include <string>

#include "trireme/core/error.h"

namespace trireme::train {

std::int64_t compression_warmup(const Config& config) {
  if (config.parallel.compress_warmup > 0) return config.parallel.compress_warmup;
  return std::max(config.train.warmup,
                  (config.train.decay_steps > 0 ? config.train.decay_steps : config.train.steps) / 4);
}

passes::CompressGradients::Options compression(const Config& config) {
  using Kind = passes::CompressGradients::Kind;
  passes::CompressGradients::Options options;
  const std::string& text = config.parallel.compress;
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const double argument = colon == std::string::npos ? 0 : std::stod(text.substr(colon + 1));
  if (kind == "bf16")
    options.kind = Kind::bf16;
  else if (kind == "int8")
    options.kind = Kind::int8;
  else if (kind == "onebit")
    options.kind = config.train.optimizer == "adamw" ? Kind::momentum : Kind::onebit;
  else if (kind == "topk")
    options.kind = Kind::largest;
  else if (kind == "powersgd")
    options.kind = Kind::low_rank;
  else
    fail("parallel.compress = \"{}\" was not checked", text);
  if (options.kind == Kind::largest) options.fraction = argument;
  if (options.kind == Kind::low_rank) options.rank = static_cast<std::int64_t>(argument);
  if (options.kind == Kind::largest || options.kind == Kind::onebit || options.kind == Kind::momentum)
    options.warmup = compression_warmup(config);
  options.error_feedback = config.parallel.error_feedback;
  options.momentum_masking = config.parallel.momentum_masking;
  return options;
}

}  // namespace trireme::train
