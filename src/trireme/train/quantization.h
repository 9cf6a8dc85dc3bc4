#pragma once
#include <optional>

#include "trireme/passes/quantize_weights.h"
#include "trireme/train/config.h"

namespace trireme::train {

// How memory.weights and memory.weight_bits store weights outside training; nothing: as they are.
std::optional<passes::QuantizeWeights::Options> stored_weights(const Config& config);
// How train.quantize rounds them in training; nothing: not at all.
std::optional<passes::QuantizeWeights::Options> trained_weights(const Config& config);

// Refuses, by key, what cannot be parsed or does not go together.
void check_quantization(const Config& config, bool images);

}  // namespace trireme::train
