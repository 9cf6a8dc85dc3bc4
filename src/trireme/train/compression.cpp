#include "trireme/train/compression.h"

#include <string>

#include "trireme/core/error.h"

namespace trireme::train {

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
    options.warmup = config.parallel.compress_warmup > 0 ? config.parallel.compress_warmup : config.train.warmup;
  options.error_feedback = config.parallel.error_feedback;
  options.momentum_masking = config.parallel.momentum_masking;
  return options;
}

}  // namespace trireme::train
