#include "trireme/data/image_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "support/folder.h"
#include "trireme/core/error.h"
#include "trireme/data/image_dataset.h"
#include "trireme/data/sampler.h"

namespace trireme::data {
namespace {

using test::expect_contains;
using test::Folder;
using test::refusal;

std::string word(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

std::string idx(const std::vector<std::uint32_t>& extents, const std::string& elements, char type = 8) {
  std::string text{'\0', '\0', type, static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) text += word(extent);
  return text + elements;
}

// Pixel i of image n is (n * 31 + i) mod 256.
std::string pixels(std::size_t images, std::size_t bytes) {
  std::string text;
  for (std::size_t n = 0; n < images; ++n)
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(n * 31 + i);
  return text;
}

std::string labels(std::size_t images, std::size_t classes) {
  std::string text;
  for (std::size_t n = 0; n < images; ++n) text += static_cast<char>(n % classes);
  return text;
}

std::string cifar(std::size_t images, std::size_t marks = 1) {
  std::string text;
  for (std::size_t n = 0; n < images; ++n) {
    if (marks == 2) text += static_cast<char>(99);
    text += static_cast<char>(n % 10);
    for (std::size_t i = 0; i < 3072; ++i) text += static_cast<char>(n + i / 1024 * 50 + i % 32);
  }
  return text;
}

void write_mnist(const Folder& folder, const std::string& dash = "-") {
  folder.write("train-images" + dash + "idx3-ubyte", idx({30, 6, 6}, pixels(30, 36)));
  folder.write("train-labels" + dash + "idx1-ubyte", idx({30}, labels(30, 10)));
  folder.write("t10k-images" + dash + "idx3-ubyte", idx({8, 6, 6}, pixels(8, 36)));
  folder.write("t10k-labels" + dash + "idx1-ubyte", idx({8}, labels(8, 10)));
}

Data open(const std::string& path, SampleShape shape = {.images = true}, const std::string& augment = "none") {
  DataConfig config;
  config.images = path;
  config.augment = augment;
  return open_data(config, shape);
}

TEST(ImageFiles, Mnist) {
  for (const char* dash : {"-", "."}) {
    const Folder folder;
    write_mnist(folder, dash);
    const Data data = open(folder.path());
    EXPECT_EQ(data.summary, "30 IDX images 6×6×1 in 10 classes, 8 held out");
    EXPECT_EQ(data.shape.image, 6);
    EXPECT_EQ(data.shape.channels, 1);
    EXPECT_EQ(data.shape.classes, 10);
    ASSERT_NE(data.eval, nullptr);
    EXPECT_EQ(data.eval->samples(), 8);
    Batch batch;
    Sampler(data.train, Order::sequential, 1, 30).fill(0, {{0, 30}}, batch);
    for (std::int32_t n = 0; n < 30; ++n) EXPECT_EQ(batch.labels[static_cast<std::size_t>(n)], n % 10);
    // Normalised: mean 0, deviation 1 over the training images.
    const double mean = std::accumulate(batch.images.begin(), batch.images.end(), 0.0) / (30 * 36);
    double square = 0;
    for (const float v : batch.images) square += static_cast<double>(v) * static_cast<double>(v);
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(square / (30 * 36), 1, 1e-6);
    // One file alone has no test part: its tail is held out.
    const Data one = open(folder.path(std::string("train-images") + dash + "idx3-ubyte"));
    EXPECT_EQ(one.train->samples(), 29);
    EXPECT_EQ(one.eval->samples(), 1);
  }
}

TEST(ImageFiles, AShareToHoldOutIsForFilesWithoutTests) {
  const Folder folder;
  write_mnist(folder);
  DataConfig config;
  config.images = folder.path();
  config.holdout = 0.4;
  const Data data = open_data(config, {.images = true});
  expect_contains(data.summary, "warning holdout = 0.4 has no effect");
  EXPECT_EQ(data.eval->samples(), 8);
}

TEST(ImageFiles, Cifar10) {
  const Folder folder;
  for (int i = 1; i <= 5; ++i)
    folder.write("c/cifar-10-batches-bin/data_batch_" + std::to_string(i) + ".bin", cifar(7));
  folder.write("c/cifar-10-batches-bin/test_batch.bin", cifar(6));
  const Data data = open(folder.path("c"));
  EXPECT_EQ(data.summary, "35 CIFAR-10 images 32×32×3 in 10 classes, 6 held out");
  Batch batch;
  Sampler(data.train, Order::sequential, 1, 35).fill(0, {{0, 35}}, batch);
  // Planes become channels: pixels of one value stay in order, whatever the normalisation.
  const ImageSet set = open_image_files(folder.path("c/cifar-10-batches-bin/data_batch_1.bin"), "images").train;
  const Normalisation n = normalisation_of(open_image_files(folder.path("c"), "images").train);
  for (const std::size_t image : {0U, 3U})
    for (const std::size_t y : {0U, 31U})
      for (const std::size_t x : {0U, 1U, 30U})
        for (std::size_t c = 0; c < 3; ++c) {
          const auto byte = static_cast<double>(image + c * 50 + x);
          EXPECT_FLOAT_EQ(batch.images[((image * 32 + y) * 32 + x) * 3 + c],
                          static_cast<float>((byte / 255 - n.mean[c]) / n.deviation[c]));
        }
  EXPECT_EQ(set.count(), 7);
  EXPECT_EQ(batch.labels[34], 6);
}

TEST(ImageFiles, Cifar100TakesTheFineLabel) {
  const Folder folder;
  folder.write("train.bin", cifar(20, 2));
  folder.write("test.bin", cifar(5, 2));
  const Data data = open(folder.path());
  EXPECT_EQ(data.shape.classes, 100);
  Batch batch;
  Sampler(data.train, Order::sequential, 1, 20).fill(0, {{0, 20}}, batch);
  EXPECT_EQ(batch.labels[13], 3);
}

TEST(ImageFiles, ChannelsOfIdx) {
  const Folder folder;
  folder.write("train-images-idx4-ubyte", idx({10, 5, 5, 2}, pixels(10, 50)));
  folder.write("train-labels-idx1-ubyte", idx({10}, labels(10, 3)));
  const Data data = open(folder.path());
  EXPECT_EQ(data.shape.channels, 2);
  EXPECT_EQ(data.shape.classes, 3);
}

TEST(ImageFiles, TheModelMustFit) {
  const Folder folder;
  write_mnist(folder);
  const auto refused = [&](const SampleShape& shape) { return refusal([&] { open(folder.path(), shape); }); };
  expect_contains(refused({.images = true, .image = 28}), "set image = 6");
  expect_contains(refused({.images = true, .image = 6, .channels = 3}), "set channels = 1");
  expect_contains(refused({.images = true, .classes = 9}), "set classes = 10");
  EXPECT_EQ(open(folder.path(), {.images = true, .classes = 12}).shape.classes, 12);
}

TEST(ImageFiles, BadInput) {
  const Folder folder;
  const auto refused = [&](const std::string& name) { return refusal([&] { open(folder.path(name)); }); };
  const auto images_refused = [&](const std::string& bytes) {
    folder.write("b/train-images-idx3-ubyte", bytes);
    return refused("b");
  };
  folder.write("b/train-labels-idx1-ubyte", idx({2}, labels(2, 2)));
  expect_contains(refused("none"), "there is no file");
  expect_contains(refused(""), "there are no training images");
  expect_contains(images_refused(idx({2, 4, 4}, std::string(31, 'x'))), "promises 2×4×4 bytes of data, but 31 follow");
  expect_contains(images_refused(idx({2, 4, 4}, std::string(33, 'x'))), "but 33 follow");
  expect_contains(images_refused(idx({0x80000000, 0x80000000, 4}, "x")), "but 1 follow");
  expect_contains(images_refused(idx({0, 4, 4}, "")), "holds no images");
  expect_contains(images_refused(idx({2, 0, 0}, "")), "0×0×1");
  expect_contains(images_refused(idx({2, 4, 3}, std::string(24, 'x'))), "its images are 4×3×1");
  expect_contains(images_refused(idx({2, 16}, std::string(32, 'x'))), "has 2 dimensions");
  expect_contains(images_refused(idx({2, 4, 4}, std::string(32, 'x'), 13)), "holds 32-bit floats");
  expect_contains(images_refused(std::string("\0\0\10\3\0\0", 6)), "too few for its header");
  expect_contains(images_refused(idx({3, 4, 4}, std::string(48, 'x'))), "2 labels for the 3 images");
  expect_contains(images_refused("P5 not idx"), "is neither IDX nor CIFAR");
  folder.write("l/train-images-idx3-ubyte", idx({2, 4, 4}, std::string(32, 'x')));
  expect_contains(refused("l"), "there are no labels for");
  expect_contains(refused("l"), "train-labels.idx1-ubyte");
  folder.write("z/train-images-idx3-ubyte.gz", "x");
  expect_contains(refused("z"), "gunzip");
  folder.write("p/data_batch_1", "x");
  expect_contains(refused("p"), "Python version");
  folder.write("e/data_batch_1.bin", "");
  expect_contains(refused("e"), "holds no images");
}

TEST(ImageFiles, LabelBeyondItsClassesIsFoundBeforeTraining) {
  const Folder folder;
  std::string records = cifar(3);
  records[2 * 3073] = 10;
  folder.write("data_batch_1.bin", records);
  DataConfig config;
  config.images = folder.path();
  config.holdout = 0;
  expect_contains(refusal([&] { open_data(config, {.images = true}); }), "data_batch_1.bin: image 2 has label 10");
}

// Whichever part it is in, the image that has the largest label is the one that is named.
TEST(ImageFiles, TheImageOfTheLargestLabelIsNamed) {
  const Folder folder;
  write_mnist(folder);
  const auto refused = [&] { return refusal([&] { open(folder.path(), {.images = true, .classes = 10}); }); };
  std::string marks = labels(8, 10);
  marks[3] = 12;
  folder.write("t10k-labels-idx1-ubyte", idx({8}, marks));
  expect_contains(refused(), "t10k-images-idx3-ubyte: image 3 has label 12; mend the label, or set classes = 13");
  EXPECT_NE(open(folder.path()).summary.find("t10k-images-idx3-ubyte: image 3 has label 12"), std::string::npos);
  // Among those that are held out of the training files.
  const Folder alone;
  marks = labels(30, 10);
  marks[29] = 14;
  alone.write("train-images-idx3-ubyte", idx({30, 6, 6}, pixels(30, 36)));
  alone.write("train-labels-idx1-ubyte", idx({30}, marks));
  DataConfig config;
  config.images = alone.path();
  config.holdout = 0.2;
  expect_contains(refusal([&] { open_data(config, {.images = true, .classes = 10}); }),
                  "image 29 has label 14; mend the label, or set classes = 15");
}

class Augmented : public testing::Test {
 protected:
  Augmented() { folder_.write("data_batch_1.bin", cifar(20)); }
  Folder folder_;
};

TEST_F(Augmented, DependsOnSeedStepAndRowAlone) {
  const Data data = open(folder_.path(), {.images = true}, "auto");
  const Sampler sampler(data.train, Order::sequential, 7, 19);
  Batch whole;
  Batch part;
  constexpr std::int64_t image = 32 * 32 * 3;
  sampler.fill(11, {{0, 19}}, whole);
  for (const std::int64_t first : {0, 6, 18}) {
    sampler.fill(11, {{first, 1}}, part);
    EXPECT_TRUE(std::equal(part.images.begin(), part.images.end(), whole.images.begin() + first * image));
  }
  sampler.fill(12, {{0, 19}}, part);
  EXPECT_NE(part.images, whole.images);
  Sampler(data.train, Order::sequential, 8, 19).fill(11, {{0, 19}}, part);
  EXPECT_NE(part.images, whole.images);
}

// What is read is one of the 9 × 9 × 2 changed images, each of them about as often as the others.
TEST_F(Augmented, CropsAndFlips) {
  const ImageSet set = open_image_files(folder_.path(), "images").train;
  const Normalisation n = normalisation_of(set);
  const ImageDataset plain(set, n);
  const ImageDataset changed(set, n, {.crop = true, .flip = true});
  Batch original;
  plain.resize(original, 1);
  plain.read(5, 0, original);
  const auto at = [](const Batch& batch, std::int64_t y, std::int64_t x, std::int64_t c) {
    return batch.images[static_cast<std::size_t>((y * 32 + x) * 3 + c)];
  };
  std::array<int, 2> mirrored{};
  std::array<int, 9> down{};
  Batch batch;
  changed.resize(batch, 1);
  for (batch.step = 0; batch.step < 300; ++batch.step) {
    changed.read(5, 0, batch);
    int matches = 0;
    for (int flip = 0; flip < 2; ++flip)
      for (std::int64_t dy = -4; dy <= 4; ++dy)
        for (int dx = -4; dx <= 4; ++dx) {
          const auto same = [&](std::int64_t y, std::int64_t x, std::int64_t c) {
            const std::int64_t from_y = y + dy;
            const std::int64_t from_x = (flip == 1 ? 31 - x : x) + dx;
            const bool inside = from_y >= 0 && from_y < 32 && from_x >= 0 && from_x < 32;
            const auto k = static_cast<std::size_t>(c);
            const auto black = static_cast<float>(-n.mean[k] / n.deviation[k]);
            return at(batch, y, x, c) == (inside ? at(original, from_y, from_x, c) : black);
          };
          bool equal = true;
          for (std::int64_t i = 0; i < 32 && equal; ++i)
            equal = same(0, i, 0) && same(31, i, 1) && same(i, 0, 2) && same(i, 31, 0) && same(i, i, 1);
          if (!equal) continue;
          ++matches;
          ++mirrored[static_cast<std::size_t>(flip)];
          ++down[static_cast<std::size_t>(dy + 4)];
        }
    ASSERT_EQ(matches, 1) << "step " << batch.step;
  }
  for (const int times : mirrored) EXPECT_NEAR(times, 150, 45);
  for (const int times : down) EXPECT_GT(times, 10);
}

TEST_F(Augmented, HeldOutImagesStayAsTheyAre) {
  folder_.write("test_batch.bin", cifar(4));
  const Data data = open(folder_.path(), {.images = true}, "crop,flip");
  Batch first;
  Batch second;
  Sampler(data.eval, Order::sequential, 1, 4).fill(0, {{0, 4}}, first);
  Sampler(data.eval, Order::sequential, 2, 4).fill(9, {{0, 4}}, second);
  EXPECT_EQ(first.images, second.images);
  EXPECT_NE(refusal([&] { open(folder_.path(), {.images = true}, "rotate"); }).find("augment must be"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::data
