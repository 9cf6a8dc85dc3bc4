#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/image_files.h"

namespace trireme::data {

// How bytes become numbers, per channel: (byte / 255 - mean) / deviation.
struct Normalisation {
  std::vector<double> mean;
  std::vector<double> deviation;
};

// Mean and deviation of each channel over kSampledImages images spread evenly over the set (all of a smaller one),
// summed in whole numbers, so that every machine gets the same. A channel of one value has deviation 1.
constexpr std::int64_t kSampledImages = 10'000;
Normalisation normalisation_of(const ImageSet& set);

// Changes to training images. Crop: the image moves by up to kCropPad pixels each way, black where nothing is left.
// Flip: every other one is mirrored, left to right.
struct Augmentation {
  static constexpr std::int64_t kCropPad = 4;
  bool crop = false;
  bool flip = false;
};
// "none", or some of "crop" and "flip" with a comma between; nothing for other text.
std::optional<Augmentation> parse_augmentation(std::string_view text);

// Images as numbers, channels last. What augmentation does to row r of step s is a function of (seed, s, r) alone: the
// same for any number of ranks and after a restart.
class ImageDataset final : public Dataset {
 public:
  ImageDataset(ImageSet set, const Normalisation& normalisation, Augmentation augmentation = {});

  std::int64_t samples() const override { return samples_; }
  std::int64_t tokens_per_sample() const override { return 1; }
  void resize(Batch& batch, std::int64_t rows) const override;
  void read(std::int64_t sample, std::int64_t row, Batch& batch) const override;
  DataMemory memory() const override;

 private:
  ImageSet set_;
  std::int64_t samples_;
  Augmentation augmentation_;
  std::vector<std::int64_t> first_;  // of each piece
  std::vector<float> values_;        // channels × 256: what each byte becomes
};

}  // namespace trireme::data
