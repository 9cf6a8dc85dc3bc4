#include "trireme/data/image_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

constexpr std::int64_t kBytes = 256;

std::span<const std::byte> pixels_of(const ImageSet& set, const ImageSet::Piece& piece, std::int64_t index) {
  return piece.pixels.subspan(static_cast<std::size_t>(index * piece.pixel_stride),
                              static_cast<std::size_t>(set.bytes_per_image()));
}

}  // namespace

Normalisation normalisation_of(const ImageSet& set) {
  const std::int64_t count = set.count();
  const std::int64_t sampled = std::min(count, kSampledImages);
  const std::int64_t area = set.size * set.size;
  const auto channels = static_cast<std::size_t>(set.channels);
  std::vector<std::uint64_t> histogram(channels * kBytes);
  std::size_t piece = 0;
  std::int64_t before = 0;  // images of the pieces passed
  for (std::int64_t s = 0; s < sampled; ++s) {
    // s * count / sampled in two parts, neither of which overflows.
    const std::int64_t image = s * (count / sampled) + s * (count % sampled) / sampled;
    while (image - before >= set.pieces[piece].count) before += set.pieces[piece++].count;
    const std::span<const std::byte> pixels = pixels_of(set, set.pieces[piece], image - before);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::size_t channel = set.planar ? i / static_cast<std::size_t>(area) : i % channels;
      ++histogram[channel * kBytes + std::to_integer<std::size_t>(pixels[i])];
    }
  }
  Normalisation result;
  const double pixels = static_cast<double>(sampled) * static_cast<double>(area);
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = 0;
    double squares = 0;
    for (std::size_t b = 0; b < kBytes; ++b) {
      const auto times = static_cast<double>(histogram[c * kBytes + b]);
      sum += times * static_cast<double>(b);
      squares += times * static_cast<double>(b * b);
    }
    const double mean = sum / pixels;
    const double variance = std::max(0.0, squares / pixels - mean * mean);
    result.mean.push_back(mean / 255);
    result.deviation.push_back(variance > 0 ? std::sqrt(variance) / 255 : 1);
  }
  return result;
}

std::optional<Augmentation> parse_augmentation(std::string_view text) {
  Augmentation result;
  if (text == "none") return result;
  for (const std::string& part : split(text, ',')) {
    const std::string_view name = trim(part);
    if (name == "crop" && !result.crop)
      result.crop = true;
    else if (name == "flip" && !result.flip)
      result.flip = true;
    else
      return std::nullopt;
  }
  return result;
}

ImageDataset::ImageDataset(ImageSet set, const Normalisation& normalisation, Augmentation augmentation)
    : set_(std::move(set)), samples_(set_.count()), augmentation_(augmentation) {
  TRI_CHECK(static_cast<std::int64_t>(normalisation.mean.size()) == set_.channels, "{} means for {} channels",
            normalisation.mean.size(), set_.channels);
  std::int64_t first = 0;
  for (const ImageSet::Piece& piece : set_.pieces) {
    first_.push_back(first);
    first += piece.count;
  }
  for (std::size_t c = 0; c < normalisation.mean.size(); ++c)
    for (std::int64_t b = 0; b < kBytes; ++b)
      values_.push_back(
          static_cast<float>((static_cast<double>(b) / 255 - normalisation.mean[c]) / normalisation.deviation[c]));
}

void ImageDataset::resize(Batch& batch, std::int64_t rows) const {
  batch.images.resize(static_cast<std::size_t>(rows * set_.bytes_per_image()));
  batch.labels.resize(static_cast<std::size_t>(rows));
}

void ImageDataset::read(std::int64_t sample, std::int64_t row, Batch& batch) const {
  TRI_CHECK(0 <= sample && sample < samples_, "image {} of {}", sample, samples_);
  const auto after = std::upper_bound(first_.begin(), first_.end(), sample);
  const auto p = static_cast<std::size_t>(after - first_.begin()) - 1;
  const ImageSet::Piece& piece = set_.pieces[p];
  const std::int64_t index = sample - first_[p];
  std::span<const std::byte> pixels = pixels_of(set_, piece, index);
  std::byte mark = {};
  const std::byte* const labelled = piece.labels.data() + index * piece.label_stride;
  if (piece.files.empty()) {
    mark = *labelled;
  } else {
    static thread_local std::vector<std::byte> copy;
    copy.resize(pixels.size());
    piece.files.front()->read(pixels.data(), copy);
    piece.files.back()->read(labelled, std::span(&mark, 1));
    pixels = copy;
  }
  const auto label = std::to_integer<std::int32_t>(mark);
  if (label >= set_.classes)
    fail("{}: image {} has label {}, but there are {} classes", piece.name, piece.file_offset + index, label,
         set_.classes);

  std::int64_t down = 0;
  std::int64_t right = 0;
  bool mirrored = false;
  if (augmentation_.crop || augmentation_.flip) {
    static const std::uint64_t site = site_of("augmentation of images");
    const RandomStream random{batch.seed, site, static_cast<std::uint64_t>(batch.step)};
    const auto words = random.words(static_cast<std::uint64_t>(batch.global_row(row)), 0);
    constexpr std::uint32_t moves = 2 * Augmentation::kCropPad + 1;
    if (augmentation_.crop) {
      down = static_cast<std::int64_t>(words[0] % moves) - Augmentation::kCropPad;
      right = static_cast<std::int64_t>(words[1] % moves) - Augmentation::kCropPad;
    }
    mirrored = augmentation_.flip && (words[2] & 1U) != 0;
  }

  const std::int64_t size = set_.size;
  const std::int64_t channels = set_.channels;
  const std::int64_t pixel_step = set_.planar ? 1 : channels;
  const std::int64_t channel_step = set_.planar ? size * size : 1;
  float* out = batch.images.data() + row * set_.bytes_per_image();
  for (std::int64_t y = 0; y < size; ++y)
    for (std::int64_t x = 0; x < size; ++x) {
      const std::int64_t from_y = y + down;
      const std::int64_t from_x = (mirrored ? size - 1 - x : x) + right;
      const bool inside = 0 <= from_y && from_y < size && 0 <= from_x && from_x < size;
      const std::int64_t at = (from_y * size + from_x) * pixel_step;
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::size_t byte =
            inside ? std::to_integer<std::size_t>(pixels[static_cast<std::size_t>(at + c * channel_step)]) : 0;
        *out++ = values_[static_cast<std::size_t>(c * kBytes) + byte];
      }
    }
  batch.labels[static_cast<std::size_t>(row)] = label;
}

DataMemory ImageDataset::memory() const {
  DataMemory sum;
  for (const ImageSet::Piece& piece : set_.pieces) sum.mapped += piece.pixels.size() + piece.labels.size();
  return sum;
}

}  // namespace trireme::data
