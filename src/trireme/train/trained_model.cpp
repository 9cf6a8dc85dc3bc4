#include "trireme/train/trained_model.h"

#include <algorithm>
#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/run_folder.h"

namespace trireme::train {

void check_is_there(const std::string& from, const std::string& given) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (fs::exists(from, unknown)) return;
  fs::path wanted = fs::path(from).lexically_normal();
  if (!wanted.has_filename()) wanted = wanted.parent_path();
  const fs::path folder = wanted.parent_path();
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder, unknown))
    if (holds_run(entry.path()) || is_huggingface_folder(entry.path()))
      names.push_back(entry.path().filename().string());
  const auto near = nearest(wanted.filename().string(), names);
  refuse("{}: there is no such folder{}", given,
         near ? fmt::format("; did you mean {}?", (folder / *near).string()) : "");
}

TrainedModel::TrainedModel(Config config, const Registry& registry, CompileOptions options, const std::string& from,
                           std::optional<std::int64_t> step, const LogSink& log)
    : config_(std::move(config)) {
  const bool run = holds_run(from);
  if (!run && !is_huggingface_folder(from))
    refuse("{}: there is no run and no Hugging Face model in that folder", from);
  if (!run && step) refuse("--step {}: {} is not a run folder and has no checkpoints", *step, from);
  if (run) {
    step_ = step ? step : newest_checkpoint(from, log);
    if (!step_) refuse("{}: the run has no checkpoint", from);
  }
  options.threads = compute_threads(config_);
  resolve_model(config_, config_.model.vocab, registry.models);
  compiled_ = compile(config_, registry, options);
  session_ = std::make_unique<Session>(compiled_, options.threads, offload_folder(config_, from));
  if (run)
    load_checkpoint(from, *step_, *session_);
  else
    load_huggingface(from, *session_);
}

void set_mesh_of_use(Config& config, std::span<const std::string> settings) {
  const auto names_mesh = [](const std::string& setting) { return setting.starts_with("parallel.mesh="); };
  if (std::none_of(settings.begin(), settings.end(), names_mesh)) config.parallel.mesh = "auto";
  config.parallel.zero = 0;
}

std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config) {
  const bool named = config.data.tokenizer != "bytes";
  if (config.data.tokenizer == "none" || (!named && !config.data.tokens.empty())) return nullptr;
  return data::open_tokenizer(config.data.tokenizer, "data.tokenizer");
}

}  // namespace trireme::train
