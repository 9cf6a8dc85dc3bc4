#include <cstring>
#include <vector>

#include "fuzz/targets.h"
#include "trireme/data/image_dataset.h"

namespace trireme::fuzz {
namespace {

void use(const data::ImageSet& set) {
  const data::ImageDataset images(set, data::normalisation_of(set), {.crop = true, .flip = true});
  data::Batch batch;
  images.resize(batch, 1);
  for (const std::int64_t sample : {std::int64_t{0}, images.samples() / 2, images.samples() - 1}) {
    batch.step = sample;
    images.read(sample, 0, batch);
  }
  const data::ImageSet tail = set.slice(set.count() / 2, set.count());
  fail_if(tail.count() != set.count() - set.count() / 2, "a slice has other images than its bounds");
}

}  // namespace

void idx_images(Input input) {
  std::uint32_t length = 0;
  if (input.size() < sizeof length) return;
  std::memcpy(&length, input.data(), sizeof length);
  const Input files = input.subspan(sizeof length);
  const std::size_t cut = std::min<std::size_t>(length, files.size());
  const std::vector<std::uint8_t> images(files.begin(), files.begin() + static_cast<std::ptrdiff_t>(cut));
  const std::vector<std::uint8_t> labels(files.begin() + static_cast<std::ptrdiff_t>(cut), files.end());
  use(data::idx_images(bytes_of(images), "images", bytes_of(labels), "labels"));
}

void cifar_images(Input input) { use(data::cifar_images(bytes_of(input), "batch.bin")); }

}  // namespace trireme::fuzz
