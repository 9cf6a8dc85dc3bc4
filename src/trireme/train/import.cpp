#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/version.h"
#include "trireme/io/shard_writer.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/compile.h"
#include "trireme/train/convert.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/imported_run.h"
#include "trireme/train/overwritten.h"
#include "trireme/train/run_folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kTokenizerFiles = std::to_array<const char*>(
    {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
     "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json"});

std::string run_json(const ImportOptions& options, const std::string& from, std::uint64_t parameters) {
  nlohmann::ordered_json o;
  o["command"] = options.command;
  o["build"] = {{"version", version()}, {"compiler", __VERSION__}};
  o["imported_from"] = from;
  o["parameters"] = parameters;
  return o.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

bool is_tokenizer_file(std::string_view name) {
  return std::find(kTokenizerFiles.begin(), kTokenizerFiles.end(), name) != kTokenizerFiles.end();
}

bool copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (const char* name : kTokenizerFiles) {
    fs::remove(to / name);  // of an earlier folder
    if (fs::exists(from / name)) fs::copy_file(from / name, to / name);
  }
  return fs::exists(to / "tokenizer.json");
}

bool keep_tokenizer_files(const fs::path& from, const fs::path& run) {
  const bool tokenizer = copy_tokenizer_files(from, run);
  if (!fs::exists(run / "generation_config.json"))
    write_file_atomically((run / "generation_config.json").string(), io::generation_config_of(from.string()));
  return tokenizer;
}

void check_import_target(const fs::path& run, const ImportOptions& options) {
  check_replaces_runs_only(run, run.string(), true);
  if (holds_run(run) && !options.overwrite)
    refuse("{} already holds a run; give --overwrite to replace it, or another folder", run.string());
}

void write_imported(const Config& config, const fs::path& run, const ImportOptions& options, const std::string& from,
                    std::vector<io::ShardTensor> tensors, const std::function<void()>& more) {
  if (is_overwritten(run, from))
    refuse("{} is in part in the folder that is overwritten, {}; name another folder for the run", from, run.string());
  std::uint64_t parameters = 0;
  for (const io::ShardTensor& tensor : tensors) parameters += static_cast<std::uint64_t>(tensor.type.elements());
  const auto checkpoint = [&] {
    constexpr std::size_t kStaging = 256 * io::kStagingAlignment;
    const std::unique_ptr<void, decltype(&std::free)> staging(std::aligned_alloc(io::kStagingAlignment, kStaging),
                                                              &std::free);
    if (!staging) throw std::bad_alloc();
    const SavedShard shard{
        0, shard_file(0), std::move(tensors), {}, {static_cast<std::byte*>(staging.get()), kStaging}};
    write_checkpoint(run, describe_checkpoint(config, 0), {&shard, 1}, {});
  };
  write_whole_run(run, config, options.overwrite ? RunMode::overwrite : RunMode::fresh,
                  run_json(options, from, parameters), checkpoint, more);
}

Imported import_huggingface(Config config, const fs::path& run, const ImportOptions& options,
                            const models::Families& families) {
  const std::string from = config.init.from;
  const io::HfConfig theirs = io::read_hf_config(from, config.names);
  const io::HfWeights weights(from, theirs.model);
  resolve_model(config, config.model.vocab, families);
  // The run may be used from elsewhere.
  config.init.from = fs::absolute(from).lexically_normal().string();
  config.output.dir = run.string();
  // What to train on is said later; a run's configuration is complete, and would name what nobody asked for.
  if (!config.is_given("data.text")) config.data.text.clear();
  check_import_target(run, options);
  for (const std::string& note : theirs.notes) log(options.log, LogLevel::info, "{}: {}", from, note);

  Imported result;
  std::vector<std::unique_ptr<float[]>> values;
  std::vector<io::ShardTensor> tensors;
  for (const io::HfTensor& t : io::hf_tensors(config.model, config.names)) {
    const auto count = static_cast<std::size_t>(t.shape.elements());
    values.push_back(std::make_unique_for_overwrite<float[]>(count));
    const std::span<float> into(values.back().get(), count);
    weights.read(t.ours, t.shape, into);
    Shape start = t.shape;
    for (int d = 0; d < start.rank(); ++d) start[d] = 0;
    tensors.push_back({t.ours, {DType::f32, t.shape}, "weights", start, t.shape, std::as_bytes(into)});
    result.parameters += count;
  }
  write_imported(config, run, options, config.init.from, std::move(tensors),
                 [&] { result.tokenizer = keep_tokenizer_files(from, run); });
  return result;
}

}  // namespace trireme::train
