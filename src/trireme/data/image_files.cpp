#include "trireme/data/image_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/data/find_files.h"
#include "trireme/data/idx_file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kCifarSize = 32;
constexpr std::int64_t kCifarPixels = kCifarSize * kCifarSize * 3;
constexpr std::int64_t kCifar10Record = 1 + kCifarPixels;
constexpr std::int64_t kCifar100Record = 2 + kCifarPixels;

using Files = std::vector<std::string>;

// The folder's files by name; nothing when there is no such folder.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool ends_with_any(const std::string& name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

bool is_idx_images(const std::string& name) {
  return ends_with_any(name, {"images-idx3-ubyte", "images.idx3-ubyte", "images-idx4-ubyte", "images.idx4-ubyte"});
}

bool is_test_name(const std::string& name) {
  return name.find("t10k") != std::string::npos || name.find("test") != std::string::npos;
}

// The labels of an image file: "images" and the dimensions replaced in its name.
std::string labels_of(const std::string& path, std::string_view key) {
  const fs::path images(path);
  const std::string name = images.filename().string();
  const std::size_t at = name.rfind("images");
  if (at == std::string::npos)
    refuse(
        "{}: {} holds images, and its labels are not known: a name such as train-images-idx3-ubyte says where they "
        "are (train-labels-idx1-ubyte)",
        key, path);
  const std::string before = name.substr(0, at) + "labels";
  std::vector<std::string> tried;
  for (const char* ending : {"-idx1-ubyte", ".idx1-ubyte"}) {
    const fs::path labels = images.parent_path() / (before + ending);
    std::error_code ignored;
    if (fs::exists(labels, ignored)) return labels.string();
    tried.push_back(labels.string());
  }
  refuse("{}: there are no labels for {}: looked for {}", key, path, fmt::join(tried, " and "));
}

ImageSet open_file(const std::string& path, std::string_view key) {
  const auto file = std::make_shared<const MappedFile>(path);
  ImageSet set;
  std::vector<std::shared_ptr<const MappedFile>> files = {file};
  if (looks_like_idx(file->bytes())) {
    const std::string labels_path = labels_of(path, key);
    const auto labels = std::make_shared<const MappedFile>(labels_path);
    files.push_back(labels);
    set = idx_images(file->bytes(), path, labels->bytes(), labels_path);
  } else {
    set = cifar_images(file->bytes(), path);
  }
  for (ImageSet::Piece& piece : set.pieces) piece.files = files;
  return set;
}

ImageSet open_files(const Files& paths, std::string_view key) {
  ImageSet set;
  for (const std::string& path : paths) set.append(open_file(path, key));
  return set;
}

struct Found {
  Files train;
  Files test;
};

// The image files of one folder, by their usual names.
Found find_in(const fs::path& folder) {
  Found found;
  const std::vector<fs::path> entries = entries_of(folder);
  for (const fs::path& path : entries)
    if (const std::string name = path.filename().string(); is_idx_images(name))
      (is_test_name(name) ? found.test : found.train).push_back(path.string());
  if (!found.train.empty()) return found;
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (!name.ends_with(".bin")) continue;
    if (name.starts_with("data_batch_") || name == "train.bin") found.train.push_back(path.string());
    if (name == "test_batch.bin" || name == "test.bin") found.test.push_back(path.string());
  }
  return found;
}

// What a folder without image files holds instead, as advice.
std::string advice_for(const fs::path& folder) {
  const std::vector<fs::path> entries = entries_of(folder);
  const auto any = [&](auto&& test) {
    return std::any_of(entries.begin(), entries.end(), [&](const fs::path& p) { return test(p.filename().string()); });
  };
  if (any([](const std::string& n) { return n.find("ubyte") != std::string::npos && n.ends_with(".gz"); }))
    return fmt::format("; unpack its .gz files first: gunzip -k {}/*ubyte.gz", folder.string());
  if (any([](const std::string& n) { return n == "data_batch_1" || n == "batches.meta"; }))
    return "; it holds CIFAR's Python version, and the binary version (.bin) is read";
  return "; MNIST's are called train-images-idx3-ubyte and train-labels-idx1-ubyte, CIFAR-10's data_batch_1.bin";
}

ImageFiles open_folder(const fs::path& folder, std::string_view key) {
  for (const char* below : {"", "MNIST/raw", "raw", "cifar-10-batches-bin", "cifar-100-binary"}) {
    const Found found = find_in(folder / below);
    if (found.train.empty()) continue;
    ImageFiles files{open_files(found.train, key), open_files(found.test, key)};
    return files;
  }
  refuse("{}: there are no training images in {}{}", key, folder.string(), advice_for(folder));
}

std::int64_t max_label(std::span<const std::byte> labels) {
  const auto most = std::max_element(labels.begin(), labels.end());
  return most == labels.end() ? -1 : std::to_integer<std::int64_t>(*most);
}

}  // namespace

std::int64_t ImageSet::count() const {
  std::int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.count;
  return total;
}

ImageSet ImageSet::slice(std::int64_t first, std::int64_t last) const {
  TRI_CHECK(0 <= first && first <= last && last <= count(), "images {} to {} of {}", first, last, count());
  ImageSet result = *this;
  result.pieces.clear();
  std::int64_t before = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t begin = std::max(first - before, std::int64_t{0});
    const std::int64_t end = std::min(last - before, piece.count);
    before += piece.count;
    if (begin >= end) continue;
    Piece part = piece;
    part.pixels = piece.pixels.subspan(static_cast<std::size_t>(begin * piece.pixel_stride));
    part.labels = piece.labels.subspan(static_cast<std::size_t>(begin * piece.label_stride));
    part.count = end - begin;
    part.file_offset += begin;
    result.pieces.push_back(std::move(part));
  }
  return result;
}

void ImageSet::check_labels() const {
  for (const Piece& piece : pieces)
    for (std::int64_t i = 0; i < piece.count; ++i)
      if (const auto label =
              std::to_integer<std::int64_t>(piece.labels[static_cast<std::size_t>(i * piece.label_stride)]);
          label >= classes)
        refuse("{}: image {} has label {}, but there are {} classes", piece.name, piece.file_offset + i, label,
               classes);
}

std::string ImageSet::largest_label() const {
  std::string text;
  std::int64_t largest = -1;
  for (const Piece& piece : pieces)
    for (std::int64_t i = 0; i < piece.count; ++i)
      if (const auto label =
              std::to_integer<std::int64_t>(piece.labels[static_cast<std::size_t>(i * piece.label_stride)]);
          label > largest) {
        largest = label;
        text = fmt::format("{}: image {} has label {}", piece.name, piece.file_offset + i, label);
      }
  return text;
}

std::int64_t ImageSet::empty_classes() const {
  std::set<std::int64_t> seen;
  for (const Piece& piece : pieces)
    for (std::int64_t i = 0; i < piece.count; ++i)
      seen.insert(std::to_integer<std::int64_t>(piece.labels[static_cast<std::size_t>(i * piece.label_stride)]));
  return classes - std::ssize(seen);
}

void ImageSet::append(const ImageSet& other) {
  if (pieces.empty()) {
    *this = other;
    return;
  }
  if (std::tie(format, size, channels) != std::tie(other.format, other.size, other.channels))
    refuse("{}: {} images {}×{}×{} cannot follow the {} images {}×{}×{} of {}", other.pieces.front().name, other.format,
           other.size, other.size, other.channels, format, size, size, channels, pieces.front().name);
  classes = std::max(classes, other.classes);
  pieces.insert(pieces.end(), other.pieces.begin(), other.pieces.end());
}

ImageSet idx_images(std::span<const std::byte> images, const std::string& images_name,
                    std::span<const std::byte> labels, const std::string& labels_name) {
  const IdxFile pixels = parse_idx(images, images_name);
  const IdxFile marks = parse_idx(labels, labels_name);
  const std::vector<std::int64_t>& extents = pixels.extents;
  if (extents.size() < 3)
    refuse("{}: has {} dimension{}, but images have three (count, height, width) or four (channels last)", images_name,
           extents.size(), extents.size() == 1 ? "" : "s");
  if (marks.extents.size() != 1)
    refuse("{}: has {} dimensions, but labels have one", labels_name, marks.extents.size());
  if (extents[0] == 0) refuse("{}: holds no images", images_name);
  if (marks.extents[0] != extents[0])
    refuse("{}: {} labels for the {} images of {}", labels_name, marks.extents[0], extents[0], images_name);
  const std::int64_t channels = extents.size() == 4 ? extents[3] : 1;
  if (extents[1] != extents[2] || extents[1] == 0 || channels == 0)
    refuse("{}: its images are {}×{}×{}; square ones of at least one pixel and channel are needed", images_name,
           extents[1], extents[2], channels);
  ImageSet set{"IDX", extents[1], channels, max_label(marks.elements) + 1, false, {}};
  set.pieces.push_back({images_name, {}, pixels.elements, set.bytes_per_image(), marks.elements, 1, extents[0], 0});
  return set;
}

ImageSet cifar_images(std::span<const std::byte> bytes, const std::string& name) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size == 0) refuse("{}: holds no images", name);
  const bool ten = size % kCifar10Record == 0;
  const bool hundred = size % kCifar100Record == 0;
  if (!ten && !hundred)
    refuse(
        "{}: is neither IDX nor CIFAR: {} bytes are no whole number of records of {} (CIFAR-10) or {} bytes "
        "(CIFAR-100)",
        name, size, kCifar10Record, kCifar100Record);
  const std::string file = fs::path(name).filename().string();
  const bool fine = hundred && (!ten || file == "train.bin" || file == "test.bin");
  const std::int64_t record = fine ? kCifar100Record : kCifar10Record;
  const std::int64_t labels = fine ? 2 : 1;
  ImageSet set{fine ? "CIFAR-100" : "CIFAR-10", kCifarSize, 3, fine ? 100 : 10, true, {}};
  set.pieces.push_back({name,
                        {},
                        bytes.subspan(static_cast<std::size_t>(labels)),
                        record,
                        bytes.subspan(static_cast<std::size_t>(labels - 1)),
                        record,
                        size / record,
                        0});
  return set;
}

ImageFiles open_image_files(const std::string& path, std::string_view key) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path, key);
  return {open_files(find_files(path, key), key), {}};
}

}  // namespace trireme::data
