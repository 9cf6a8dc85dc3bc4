#include "trireme/compress/model.h"

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/version.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/convert.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trained_model.h"

namespace trireme::compress {
namespace {

namespace fs = std::filesystem;

// Rows of a micro-batch here: they have nothing to do with each other, and a few keep the cores busy.
constexpr std::int64_t kRows = 8;

}  // namespace

std::span<const float> Model::floats(const std::string& name) const {
  const std::vector<std::byte>& bytes = states.at(name);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<float> Model::floats(const std::string& name) {
  std::vector<std::byte>& bytes = states.at(name);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Model load_model(const std::string& from, std::span<const std::string> overrides, const train::Registry& registry,
                 std::optional<std::int64_t> step, const LogSink& log) {
  if (!fs::exists(from)) refuse("{}: there is no such folder", from);
  Model model{train::load_config(from, overrides, registry.models), {}};
  if (model.config.memory.weights != train::StoredWeights::full)
    refuse("{}: memory.weights = \"{}\": its weights are quantized already; start from the run it was made of", from,
           model.config.memory.weights);
  train::Config own = model.config;
  own.train.batch = own.train.micro_batch = kRows;
  train::TrainedModel trained(own, registry, {.purpose = train::Purpose::evaluate}, from, step, log);
  model.config.model = trained.config().model;
  for (const ir::State& state : trained.compiled().saved_states())
    model.states[state.name] = trained.session().state(state.name);
  return model;
}

void check_target(const fs::path& run, bool overwrite) {
  if (train::holds_run(run) && !overwrite)
    refuse("--out {} holds a run already; give --overwrite to replace it, or another folder", run.string());
  if (fs::exists(run) && !fs::is_directory(run)) refuse("--out {} is there already and not a folder", run.string());
}

void save_model(const Model& model, const fs::path& run, const SaveOptions& options, const train::Registry& registry) {
  train::Config config = model.config;
  config.output.dir = run.string();
  if (!config.init.from.empty()) config.init.from = fs::absolute(config.init.from).lexically_normal().string();
  // What was not asked for is not what the model was trained on.
  if (!config.is_given("data.text") && !train::holds_run(options.from)) config.data.text.clear();
  nlohmann::ordered_json about;
  about["command"] = options.command;
  about["build"] = {{"version", version()}, {"compiler", __VERSION__}};
  about["compressed_from"] = fs::absolute(options.from).lexically_normal().string();
  const train::RunLock lock =
      train::open_run_folder(run, config, options.overwrite ? train::RunMode::overwrite : train::RunMode::fresh,
                             about.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  if (train::holds_run(options.from))
    train::copy_tokenizer_files(options.from, run);
  else
    train::keep_tokenizer_files(options.from, run);
  Running running(model, registry, {.purpose = train::Purpose::evaluate});
  train::save_checkpoint(run, running.session(), config, 0, 1);
}

Running::Running(const Model& model, const train::Registry& registry, train::CompileOptions options) {
  train::Config config = model.config;
  config.parallel.mesh = "auto";  // whatever ranks trained it, one uses it
  config.train.batch = config.train.micro_batch = options.purpose == train::Purpose::generate ? 1 : kRows;
  options.threads = train::compute_threads(config);
  compiled_ = std::make_unique<train::Compiled>(train::compile(config, registry, options));
  session_ = std::make_unique<train::Session>(*compiled_, options.threads);
  for (const ir::State& state : compiled_->saved_states()) {
    const auto found = model.states.find(state.name);
    if (found == model.states.end()) fail("the model has no state '{}'", state.name);
    const TensorType whole{state.type.dtype, state.global_shape()};
    if (found->second.size() != whole.bytes())
      fail("'{}' has {} bytes, the model needs {} for {}", state.name, found->second.size(), whole.bytes(),
           whole.str());
    session_->write_state(state.name, 0, found->second);
  }
  session_->refresh_copies();
}

std::uint64_t stored_bytes(const Model& model) {
  std::uint64_t bytes = 0;
  for (const auto& [name, state] : model.states) bytes += state.size();
  return bytes;
}

}  // namespace trireme::compress
