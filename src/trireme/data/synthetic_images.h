#pragma once
#include <cstdint>
#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

// Images that need no files and can be learned: each class has a pattern of slow waves; a sample is its class's
// pattern, moved by up to two pixels and scaled, under normal noise of about the pattern's own strength. Sample i is a
// pure function of i, so any part of the set can be read anywhere.
class SyntheticImages final : public Dataset {
 public:
  static constexpr std::int64_t kSamples = 60000;

  // Samples [first, last) of the set.
  SyntheticImages(std::int64_t size, std::int64_t channels, std::int64_t classes, std::int64_t first,
                  std::int64_t last);

  std::int64_t samples() const override { return last_ - first_; }
  std::int64_t tokens_per_sample() const override { return 1; }
  void resize(Batch& batch, std::int64_t rows) const override;
  void read(std::int64_t sample, std::int64_t row, Batch& batch) const override;
  DataMemory memory() const override { return {.held = patterns_.size() * sizeof(float)}; }

 private:
  std::int64_t size_;
  std::int64_t channels_;
  std::int64_t classes_;
  std::int64_t first_;
  std::int64_t last_;
  std::vector<float> patterns_;  // classes × size × size × channels
};

}  // namespace trireme::data
