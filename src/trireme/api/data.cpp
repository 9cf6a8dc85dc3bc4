#include <trireme/data.h>

#include <utility>

namespace trireme {

Data text_files(std::vector<std::string> files, TextOptions options) {
  Data data;
  data.kind = Data::Kind::text;
  data.files = std::move(files);
  data.context = options.context;
  data.order = std::move(options.order);
  data.eval = std::move(options.eval);
  data.holdout = options.holdout;
  return data;
}

Data token_files(std::vector<std::string> files, TokenOptions options) {
  Data data;
  data.kind = Data::Kind::tokens;
  data.files = std::move(files);
  data.context = options.context;
  data.vocab = options.vocab;
  data.token_type = std::move(options.token_type);
  data.order = std::move(options.order);
  data.eval = std::move(options.eval);
  data.holdout = options.holdout;
  return data;
}

Data synthetic_images(ImageOptions options) {
  Data data;
  data.kind = Data::Kind::images;
  data.files = {};
  data.image = options.size;
  data.channels = options.channels;
  data.classes = options.classes;
  data.order = std::move(options.order);
  data.holdout = options.holdout;
  return data;
}

}  // namespace trireme
