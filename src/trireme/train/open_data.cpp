#include "trireme/train/open_data.h"

namespace trireme::train {

data::Data open_data(Config& config, const models::Families& families, const data::OpenOptions& options) {
  models::ModelConfig& c = config.model;
  // Synthetic images are made to order.
  const bool files = config.data.images != "synthetic";
  const auto asked = [&](const char* key, std::int64_t value) { return files && !config.is_given(key) ? 0 : value; };
  data::SampleShape shape;
  shape.images = families.at(c.family).images;
  shape.context = c.context;
  shape.vocab = c.vocab;
  shape.image = asked("model.image", c.image);
  shape.channels = asked("model.channels", c.channels);
  shape.classes = asked("model.classes", c.classes);
  data::Data data = data::open_data(config.data, shape, options);
  if (shape.images) {
    c.image = data.shape.image;
    c.channels = data.shape.channels;
    c.classes = data.shape.classes;
  }
  return data;
}

}  // namespace trireme::train
