#pragma once
#include <optional>

#include "trireme/compress/model.h"

namespace trireme::compress {

// What is said of a model before and after.
struct Figures {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of all that is stored
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};  // of images
};

struct MeasureOptions {
  const data::Dataset* held_out = nullptr;  // null: no loss
  std::int64_t samples = 0;                 // of it, spread evenly; 0: all
};

Figures measure(const Model& model, const train::Registry& registry, const MeasureOptions& options);

// Bytes of the keys and values that generation keeps for a whole context.
std::uint64_t cache_bytes(const Model& model, const train::Registry& registry);

// The decode speeds of two models, tokens per second, measured in turns so that a busy machine slows both.
std::pair<double, double> decode_speeds(const Model& before, const Model& after, const train::Registry& registry,
                                        std::int64_t tokens);

// Seconds of a decoded token, undisturbed: the least that each of `tokens` took in several rounds, in the mean.
double decode_seconds(const Model& model, const train::Registry& registry, std::int64_t tokens);

}  // namespace trireme::compress
