#include <nlohmann/json.hpp>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/io/gguf_names.h"
#include "trireme/train/compile.h"
#include "trireme/train/gguf.h"
#include "trireme/train/imported_run.h"
#include "trireme/train/run_folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// The files of a tokenizer that go into the run folder, by name, and what data.tokenizer becomes.
struct TokenizerFiles {
  std::map<std::string, std::string> files;
  std::string key = "none";
};

bool is_bytes(const std::vector<std::string>& tokens) {
  return tokens.size() >= 256 && std::equal(tokens.begin(), tokens.begin() + 256, data::byte_level_spellings().begin());
}

TokenizerFiles tokenizer_of(const io::GgufFile& file, const fs::path& run, const LogSink& sink) {
  TokenizerFiles found;
  if (file.has("tokenizer.huggingface.json")) {
    found.files["tokenizer.json"] = file.text("tokenizer.huggingface.json");
    found.key = (run / "tokenizer.json").string();
    return found;
  }
  const bool known = file.has("tokenizer.ggml.tokens") && file.has("tokenizer.ggml.model") &&
                     file.text("tokenizer.ggml.model") == "gpt2";
  const std::string split = file.has("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "gpt-2";
  if (!known || split != "gpt-2") {
    log(sink, LogLevel::warning,
        "{}: its tokenizer is not GPT-2's kind and is left behind; the run takes token ids, or --data.tokenizer=FILE",
        file.path());
    return found;
  }
  const std::vector<std::string>& tokens = file.texts("tokenizer.ggml.tokens");
  const bool merged = file.has("tokenizer.ggml.merges") && !file.texts("tokenizer.ggml.merges").empty();
  if (!merged && is_bytes(tokens)) {
    found.key = "bytes";
    return found;
  }
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  std::string merges = "#version: 0.2\n";
  if (merged)
    for (const std::string& merge : file.texts("tokenizer.ggml.merges")) merges += merge + "\n";
  found.files["vocab.json"] = vocab.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  found.files["merges.txt"] = merges;
  found.key = (run / "vocab.json").string();
  return found;
}

}  // namespace

GgufImported import_gguf(const fs::path& path, const fs::path& run, std::span<const std::string> overrides,
                         const ImportOptions& options, const models::Families& families) {
  if (!fs::exists(path)) refuse("{}: there is no such file", path.string());
  check_import_target(run, options);
  const io::GgufFile file(path.string());
  const TokenizerFiles tokenizer = tokenizer_of(file, run, options.log);
  GgufImported result;
  Config& config = result.config;
  config = parse_config("", path.string(), overrides, families);
  for (const std::string& key : config.given)
    if (key.starts_with("model.") && key != "model.context" && key != "model.dropout")
      refuse("{} = {} is what the file says already; leave the key out", key, value_text(config, key));
  const ModelConfig given = config.model;
  const io::GgufModel theirs = io::gguf_model(file);
  const std::vector<io::GgufParameter> parameters = io::gguf_parameters(file, theirs.model);
  for (const std::string& note : theirs.notes) log(options.log, LogLevel::info, "{}: {}", path.string(), note);
  config.model = theirs.model;
  config.model.dropout = given.dropout;
  if (config.is_given("model.context")) {
    if (given.context > config.model.context)
      refuse("model.context = {}, but {} has {} positions; give at most that", given.context, path.string(),
             config.model.context);
    if (config.model.family == "gpt2" && given.context != config.model.context)
      refuse("model.context = {}: the positions of a GPT-2 are imported as a whole, and {} has {}", given.context,
             path.string(), config.model.context);
    if (given.context < config.model.context) config.model.max_context = config.model.context;
    config.model.context = given.context;
  }
  if (!config.is_given("data.tokenizer")) config.data.tokenizer = tokenizer.key;
  if (!config.is_given("data.text")) config.data.text.clear();
  config.name = path.stem().string();
  config.output.dir = run.string();
  resolve_model(config, config.model.vocab, families);

  std::vector<std::vector<float>> values;
  std::vector<io::ShardTensor> tensors;
  for (const io::GgufParameter& p : parameters) {
    values.push_back(io::from_gguf(p, file.read(p.theirs, p.stored)));
    Shape start = p.shape;
    for (int d = 0; d < start.rank(); ++d) start[d] = 0;
    tensors.push_back(
        {p.ours, {DType::f32, p.shape}, "weights", start, p.shape, std::as_bytes(std::span(values.back()))});
    result.counts.parameters += values.back().size();
  }
  result.counts.tokenizer = tokenizer.key != "none";
  write_imported(config, run, options, fs::absolute(path).lexically_normal().string(), std::move(tensors), [&] {
    for (const auto& [name, text] : tokenizer.files) write_file_atomically((run / name).string(), text);
  });
  return result;
}

}  // namespace trireme::train
