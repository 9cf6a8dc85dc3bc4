#include "trireme/data/synthetic_images.h"

#include <cmath>
#include <numbers>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"

namespace trireme::data {
namespace {

constexpr int kWaves = 3;
constexpr std::int64_t kShift = 2;
constexpr float kNoise = 0.7F;

// Apart from every other use of randomness: the set does not depend on a run's seed.
RandomStream stream(std::string_view what) { return {0, site_of(what), 0}; }

std::vector<float> make_patterns(std::int64_t size, std::int64_t channels, std::int64_t classes) {
  const RandomStream random = stream("synthetic images: patterns");
  std::vector<float> patterns(static_cast<std::size_t>(classes * size * size * channels));
  std::size_t at = 0;
  for (std::int64_t label = 0; label < classes; ++label) {
    struct Wave {
      double fx, fy, phase;
    };
    std::vector<Wave> waves;
    for (std::int64_t w = 0; w < channels * kWaves; ++w) {
      const auto words = random.words(static_cast<std::uint64_t>(label), static_cast<std::uint64_t>(w));
      waves.push_back({std::floor(to_unit(words[0]) * 7) - 3, std::floor(to_unit(words[1]) * 7) - 3,
                       2 * std::numbers::pi * to_unit(words[2])});
    }
    for (std::int64_t y = 0; y < size; ++y)
      for (std::int64_t x = 0; x < size; ++x)
        for (std::int64_t c = 0; c < channels; ++c) {
          double value = 0;
          for (int w = 0; w < kWaves; ++w) {
            const Wave& wave = waves[static_cast<std::size_t>(c * kWaves + w)];
            const double turns =
                (wave.fx * static_cast<double>(x) + wave.fy * static_cast<double>(y)) / static_cast<double>(size);
            value += std::sin(2 * std::numbers::pi * turns + wave.phase);
          }
          patterns[at++] = static_cast<float>(value / std::sqrt(1.5 * kWaves));
        }
  }
  return patterns;
}

}  // namespace

SyntheticImages::SyntheticImages(std::int64_t size, std::int64_t channels, std::int64_t classes, std::int64_t first,
                                 std::int64_t last)
    : size_(size),
      channels_(channels),
      classes_(classes),
      first_(first),
      last_(last),
      patterns_(make_patterns(size, channels, classes)) {
  TRI_CHECK(0 <= first && first < last && last <= kSamples, "samples {} to {} of {}", first, last, kSamples);
}

void SyntheticImages::resize(Batch& batch, std::int64_t rows) const {
  batch.images.resize(static_cast<std::size_t>(rows * size_ * size_ * channels_));
  batch.labels.resize(static_cast<std::size_t>(rows));
}

void SyntheticImages::read(std::int64_t sample, std::int64_t row, Batch& batch) const {
  TRI_CHECK(0 <= sample && sample < samples(), "sample {} of {}", sample, samples());
  const auto index = static_cast<std::uint64_t>(first_ + sample);
  const auto choice = stream("synthetic images: choices").words(index, 0);
  const auto label = static_cast<std::int64_t>(choice[0] % static_cast<std::uint64_t>(classes_));
  const auto shift = [](std::uint32_t word) { return static_cast<std::int64_t>(word % (2 * kShift + 1)) - kShift; };
  const auto wrap = [&](std::int64_t position) { return (position + size_) % size_; };
  const std::int64_t dy = shift(choice[1]) % size_;
  const std::int64_t dx = shift(choice[2]) % size_;
  const float strength = 0.75F + 0.5F * to_unit(choice[3]);

  const std::int64_t pixels = size_ * size_;
  const float* pattern = patterns_.data() + label * pixels * channels_;
  float* image = batch.images.data() + row * pixels * channels_;
  float* out = image;
  for (std::int64_t y = 0; y < size_; ++y)
    for (std::int64_t x = 0; x < size_; ++x) {
      const float* from = pattern + (wrap(y + dy) * size_ + wrap(x + dx)) * channels_;
      for (std::int64_t c = 0; c < channels_; ++c) *out++ = strength * from[c];
    }
  const RandomStream noise = stream("synthetic images: noise");
  const std::int64_t elements = pixels * channels_;
  for (std::int64_t i = 0; i < elements; i += 4) {
    const auto words = noise.words(index, static_cast<std::uint64_t>(i / 4));
    const auto a = to_normal(words[0], words[1]);
    const auto b = to_normal(words[2], words[3]);
    const std::array<float, 4> four = {a[0], a[1], b[0], b[1]};
    for (std::int64_t j = 0; j < std::min<std::int64_t>(4, elements - i); ++j)
      image[i + j] += kNoise * four[static_cast<std::size_t>(j)];
  }
  batch.labels[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(label);
}

}  // namespace trireme::data
