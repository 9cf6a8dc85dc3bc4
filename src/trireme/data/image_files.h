#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/mapped_file.h"

namespace trireme::data {

// Labelled images where they lie in mapped files: one byte per channel, all of one size.
struct ImageSet {
  // Image i begins at pixels[i * pixel_stride], its label is labels[i * label_stride].
  struct Piece {
    std::string name;                                      // of the file, for messages
    std::vector<std::shared_ptr<const MappedFile>> files;  // of the pixels, then of the labels; none: in memory
    std::span<const std::byte> pixels;
    std::int64_t pixel_stride = 0;
    std::span<const std::byte> labels;
    std::int64_t label_stride = 0;
    std::int64_t count = 0;
    std::int64_t file_offset = 0;  // images of the file that come before, for messages
  };

  std::string format;     // "IDX", "CIFAR-10", "CIFAR-100"
  std::int64_t size = 0;  // height and width
  std::int64_t channels = 0;
  std::int64_t classes = 0;  // at least one more than the largest label
  bool planar = false;       // whole channels one after another instead of whole pixels
  std::vector<Piece> pieces;

  std::int64_t count() const;
  std::int64_t bytes_per_image() const { return size * size * channels; }
  ImageSet slice(std::int64_t first, std::int64_t last) const;
  // Puts `other` behind; refuses images of another shape or format.
  void append(const ImageSet& other);
  // Refuses a label that is none of the classes, naming file and image.
  void check_labels() const;
  // "labels.idx: image 12 has label 99": one with the largest label. And how many of the classes have no image.
  std::string largest_label() const;
  std::int64_t empty_classes() const;
};

// The two parts of an image collection; `test` may be empty.
struct ImageFiles {
  ImageSet train;
  ImageSet test;
};

// What `path` names. A folder with MNIST's names (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-…; any prefix,
// '.' for '-' before idx), CIFAR-10's (data_batch_1.bin …, test_batch.bin) or CIFAR-100's (train.bin, test.bin), itself
// or in the folder that their archives unpack to; or a file or glob, which gives no test part. `key` is what
// messages call that which named it.
ImageFiles open_image_files(const std::string& path, std::string_view key);

// The parts that `open_image_files` is made of, over bytes that stay where they are.
// IDX: images of three dimensions (count, height, width) or four (channels last), and one label for each.
ImageSet idx_images(std::span<const std::byte> images, const std::string& images_name,
                    std::span<const std::byte> labels, const std::string& labels_name);
// CIFAR: records of one label (CIFAR-100: coarse, then fine, which is used), then 32×32 bytes for each of red, green
// and blue.
ImageSet cifar_images(std::span<const std::byte> bytes, const std::string& name);

}  // namespace trireme::data
