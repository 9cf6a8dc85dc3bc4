#include <trireme/data.h>

#include <algorithm>
#include <utility>

#include "trireme/api/own_data.h"

namespace trireme {

Data text_files(std::vector<std::string> files, TextOptions options) {
  Data data;
  data.kind = Data::Kind::text;
  data.files = std::move(files);
  data.context = options.context;
  data.order = std::move(options.order);
  data.eval = std::move(options.eval);
  data.holdout = options.holdout;
  data.tokenizer = std::move(options.tokenizer);
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
  data.tokenizer = std::move(options.tokenizer);
  return data;
}

Data image_files(const std::string& path, ImageFileOptions options) {
  Data data;
  data.kind = Data::Kind::images;
  data.files = {path};
  data.augment = std::move(options.augment);
  data.order = std::move(options.order);
  data.eval = std::move(options.eval);
  data.holdout = options.holdout;
  return data;
}

Data own_tokens(std::int64_t samples, ReadTokens read, OwnTokenOptions options) {
  Data data;
  data.kind = Data::Kind::tokens;
  data.vocab = options.vocab;
  data.context = options.context;
  data.order = std::move(options.order);
  data.holdout = options.holdout;
  data.own = std::make_shared<OwnSamples>(OwnSamples{.samples = samples, .tokens = std::move(read)});
  return data;
}

Data own_images(std::int64_t samples, ReadImage read, ImageOptions options) {
  Data data = synthetic_images(std::move(options));
  data.own = std::make_shared<OwnSamples>(OwnSamples{.samples = samples, .image = std::move(read)});
  return data;
}

Data tokens_in_memory(std::vector<std::int32_t> tokens, OwnTokenOptions options) {
  const std::int64_t context = options.context;
  const auto samples = (std::ssize(tokens) - 1) / std::max<std::int64_t>(1, context);
  const auto kept = std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
  const auto read = [kept, context](std::int64_t sample, std::span<std::int32_t> in, std::span<std::int32_t> targets) {
    const auto first = kept->begin() + sample * context;
    std::copy(first, first + context, in.begin());
    std::copy(first + 1, first + 1 + context, targets.begin());
  };
  Data data = own_tokens(samples, read, std::move(options));
  OwnSamples own = *data.own;
  own.held = kept->size() * sizeof(std::int32_t);
  data.own = std::make_shared<const OwnSamples>(std::move(own));
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
