#include <algorithm>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/image_dataset.h"
#include "trireme/data/open_parts.h"
#include "trireme/data/synthetic_images.h"

namespace trireme::data {
namespace {

std::string count_text(std::int64_t count) { return format_count(static_cast<std::uint64_t>(count)); }

Data open_synthetic(const DataConfig& config, const SampleShape& shape, const OptionNames& names) {
  if (!config.eval.empty())
    refuse("{} has no use with {} = \"synthetic\"; set {}", names.eval, names.images, names.holdout);
  if (config.augment != "auto" && config.augment != "none")
    refuse("{} = \"{}\" has no use with {} = \"synthetic\", whose samples already differ", names.augment,
           config.augment, names.images);
  constexpr std::int64_t all = SyntheticImages::kSamples;
  const auto held_out = static_cast<std::int64_t>(config.holdout * static_cast<double>(all));
  const auto part = [&](std::int64_t first, std::int64_t last) {
    return std::make_shared<SyntheticImages>(shape.image, shape.channels, shape.classes, first, last);
  };
  Data data;
  data.shape = shape;
  data.train = part(0, all - held_out);
  if (held_out > 0) data.eval = part(all - held_out, all);
  data.summary = fmt::format("{} synthetic images {}×{}×{} in {} classes, {} held out", count_text(all), shape.image,
                             shape.image, shape.channels, shape.classes, count_text(held_out));
  return data;
}

// The shape asked for, completed from the files; refused where they differ.
SampleShape fit(SampleShape asked, const ImageSet& set, const std::string& path, const OptionNames& names) {
  const auto take = [&](std::int64_t& value, std::int64_t found, std::string_view name) {
    if (value == 0) value = found;
    if (value != found)
      refuse("{} = {} does not fit {} = \"{}\", whose images are {}×{}×{}; set {} = {}", name, value, names.images,
             path, set.size, set.size, set.channels, name, found);
  };
  take(asked.image, set.size, names.image);
  take(asked.channels, set.channels, names.channels);
  // A model may tell more classes apart than occur, but a loss needs two.
  if (asked.classes == 0) asked.classes = std::max<std::int64_t>(2, set.classes);
  if (asked.classes < set.classes)
    refuse("{} = {} is too small for {} = \"{}\": {}; mend the label, or set {} = {}", names.classes, asked.classes,
           names.images, path, set.largest_label(), names.classes, set.classes);
  return asked;
}

ImageSet open_eval(const DataConfig& config, const ImageSet& train, const OptionNames& names) {
  ImageSet eval;
  for (const std::string& path : config.eval) {
    const ImageFiles files = open_image_files(path, names.eval);
    eval.append(files.test.count() > 0 ? files.test : files.train);
  }
  // Refuses another shape.
  ImageSet both = train.slice(0, 1);
  both.append(eval);
  return eval;
}

// The last images of the training files, at least one; none with a share of 0.
ImageSet cut_images(ImageSet& train, double share, const OptionNames& names) {
  const std::int64_t count = train.count();
  if (share <= 0) return {};
  const std::int64_t held_out =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(share * static_cast<double>(count)));
  if (held_out >= count)
    refuse("data: {} {} too few to train on and to hold out {}; set {} = 0 or name {}",
           counted(static_cast<std::size_t>(count), "image"), count == 1 ? "is" : "are", held_out, names.holdout,
           names.eval);
  ImageSet eval = train.slice(count - held_out, count);
  train = train.slice(0, count - held_out);
  return eval;
}

}  // namespace

Data open_images(const DataConfig& config, const SampleShape& shape, const OptionNames& names) {
  if (config.images == "synthetic") return open_synthetic(config, shape, names);
  ImageFiles files = open_image_files(config.images, names.images);
  const bool has_tests = config.eval.empty() && !files.test.pieces.empty();
  ImageSet eval = !config.eval.empty() ? open_eval(config, files.train, names) : std::move(files.test);
  if (eval.pieces.empty()) eval = cut_images(files.train, config.holdout, names);

  const bool photographs = files.train.format.starts_with("CIFAR");
  const auto augmentation =
      config.augment == "auto" ? Augmentation{photographs, photographs} : parse_augmentation(config.augment);
  if (!augmentation) refuse("{} must be auto, none, or some of crop,flip, got \"{}\"", names.augment, config.augment);

  Data data;
  ImageSet all = files.train;
  if (eval.count() > 0) all.append(eval);
  const bool counted_here = shape.classes == 0;
  data.shape = fit(shape, all, config.images, names);
  files.train.classes = data.shape.classes;
  eval.classes = data.shape.classes;
  files.train.check_labels();
  eval.check_labels();
  data.summary = fmt::format("{} {} images {}×{}×{} in {} classes, {} held out", count_text(files.train.count()),
                             files.train.format, data.shape.image, data.shape.image, data.shape.channels,
                             data.shape.classes, count_text(eval.count()));
  if (has_tests && config.holdout != DataConfig{}.holdout)
    data.summary += fmt::format("\nwarning {} = {} has no effect: {} = \"{}\" has files for tests, which are held out",
                                names.holdout, config.holdout, names.images, config.images);
  all.classes = data.shape.classes;
  // One wrong label makes many classes that nothing is in.
  const bool by_largest = counted_here && files.train.format == "IDX";
  if (const std::int64_t empty = by_largest ? all.empty_classes() : 0; empty > 0)
    data.summary +=
        fmt::format("\nwarning {} of the classes have no image ({}): is the label right? {} sets how many there are",
                    empty, all.largest_label(), names.classes);
  const Normalisation normalisation = normalisation_of(files.train);
  data.train = std::make_shared<ImageDataset>(std::move(files.train), normalisation, *augmentation);
  if (eval.count() > 0) data.eval = std::make_shared<ImageDataset>(std::move(eval), normalisation);
  return data;
}

}  // namespace trireme::data
