#include "trireme/train/open_data.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::train {

namespace {

// Whether the C++ headers are read although nobody asked for them: no text was named, or a model was named over a
// built-in configuration and its text stayed.
bool reads_headers_unasked(const Config& config) {
  if (config.data.text != data::DataConfig{}.text) return false;
  if (!config.is_given("data.text")) return true;
  const std::vector<std::string>& own = config.over_builtin;
  const bool own_model =
      std::any_of(own.begin(), own.end(), [](const std::string& key) { return key.starts_with("model."); });
  return config.builtin && own_model && std::find(own.begin(), own.end(), "data.text") == own.end();
}

// Text that is not there, and text that the weights' tokenizer cannot read.
void check_text(const Config& config, const LogSink& sink, const char* use) {
  const data::DataConfig& data = config.data;
  if (!data.tokens.empty()) return;
  const std::string& from = config.init.from;
  const OptionNames& names = config.names;
  const bool headers = reads_headers_unasked(config);
  if (data.text.empty() || (headers && !from.empty()))
    refuse("there is nothing to {}: name text in {}, or token files in {}", use, names.text, names.tokens);
  if (headers)
    log(sink, LogLevel::warning,
        "no data was named: the model reads this machine's C++ headers, the quickstart's text. Name your own files in "
        "{} or {}",
        names.text, names.tokens);
  if (data.tokenizer == "none")
    refuse(
        "init.from = \"{}\" has no tokenizer.json and no vocab.json with merges.txt, so text cannot become its tokens; "
        "name {}, or token files in {} (transformers makes a tokenizer.json of a tokenizer.model: "
        "AutoTokenizer.from_pretrained(…).save_pretrained(…))",
        from, names.tokenizer, names.tokens);
}

}  // namespace

data::Data open_data(Config& config, const models::Families& families, const data::OpenOptions& options,
                     const char* use) {
  models::ModelConfig& c = config.model;
  if (!families.at(c.family).images) check_text(config, options.log, use);
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
  data::OpenOptions named = options;
  named.names = config.names;
  data::Data data = data::open_data(config.data, shape, named);
  if (config.train.eval_every > 0 && data.eval == nullptr && shape.images)
    refuse("train.eval_every = {} needs held-out data, and {} = \"{}\" has no files for tests: set {} or {}",
           config.train.eval_every, config.names.images, config.data.images, config.names.holdout, config.names.eval);
  if (shape.images) {
    c.image = data.shape.image;
    c.channels = data.shape.channels;
    c.classes = data.shape.classes;
  }
  return data;
}

std::string documents_warning(const Config& config, const data::Data& data) {
  const std::int64_t end = config.model.document_end;
  if (end < 0 || data.train == nullptr) return "";
  constexpr std::int64_t kTokens = 1 << 20;
  const std::int64_t most = std::max<std::int64_t>(1, kTokens / std::max<std::int64_t>(1, config.model.context));
  const std::int64_t samples = std::min(data.train->samples(), most);
  data::Batch batch;
  data.train->resize(batch, 1);
  if (batch.tokens.empty()) return "";
  for (std::int64_t i = 0; i < samples; ++i) {
    data.train->read(i, 0, batch);
    if (std::find(batch.tokens.begin(), batch.tokens.end(), end) != batch.tokens.end()) return "";
  }
  return fmt::format("{} = {}: the first {} samples have no such token, so attention crosses documents",
                     config.names.document_end, end, samples);
}

}  // namespace trireme::train
