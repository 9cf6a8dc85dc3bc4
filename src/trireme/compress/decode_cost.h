#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/train/compile.h"

namespace trireme::compress {

// What one decoded token asks of a machine.
struct DecodeWork {
  double products = 0;  // kernels that multiply matrices, which threads share
  double others = 0;    // and the rest
  // That products read and write, weights above all: of the thread that has most of them, for which the others wait.
  // Threads share whole tasks, so that of 64 columns one thread has all, and of 192 one of two has two thirds.
  double product_bytes = 0;
  double other_bytes = 0;  // the rest: caches, norms, activations
};
// Of a model, compiled for a sequence of kDecodeTokens.
DecodeWork decode_work(train::Config config, const train::Registry& registry);
inline constexpr std::int64_t kDecodeTokens = 64;

// Seconds of a decoded token on the machine it was fitted to. A small model's token is mostly the start of kernels, a
// large one's the reading of weights: both are in it, and neither is looked up.
struct DecodeCost {
  double product = 0;  // seconds of each kernel
  double other = 0;
  double product_byte = 0;
  double other_byte = 0;

  double seconds(const DecodeWork& work) const {
    return product * work.products + other * work.others + product_byte * work.product_bytes +
           other_byte * work.other_bytes;
  }
  friend bool operator==(const DecodeCost&, const DecodeCost&) = default;
};

struct DecodeSample {
  DecodeWork work;
  double seconds = 0;
};
// The cost that comes closest to the samples, as shares of each; nothing is less than zero. With `near`, samples that
// take about as many seconds count most: caches make a byte of a large model dearer than one of a small model.
DecodeCost fit_decode_cost(std::span<const DecodeSample> samples, double near = 0);

// Measures models of these configurations, with weights that stand for any, here.
std::vector<DecodeSample> measure_decoding(std::span<const train::Config> configs, const train::Registry& registry,
                                           const std::function<void(std::size_t done, std::size_t all)>& progress = {});

// A cost as a file, so that a search that goes on has the one it began with. Nothing: there is none.
std::optional<DecodeCost> read_decode_cost(const std::filesystem::path& file);
void write_decode_cost(const DecodeCost& cost, const std::filesystem::path& file);

}  // namespace trireme::compress
