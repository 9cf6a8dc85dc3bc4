#include "trireme/compress/model.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "trireme/core/error.h"
#include "trireme/core/version.h"
#include "trireme/io/packed_zeros.h"
#include "trireme/io/shard_writer.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/convert.h"
#include "trireme/train/overwritten.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trained_model.h"

namespace trireme::compress {
namespace {

namespace fs = std::filesystem;

// Rows of a micro-batch here: they have nothing to do with each other, and a few keep the cores busy.
constexpr std::int64_t kRows = 8;

// A checkpoint of step 0, in which tensors of many zeros are stored without them.
void write_states(const Model& model, const train::Compiled& compiled, const fs::path& run,
                  const train::Config& config) {
  std::vector<io::ShardTensor> tensors;
  for (const ir::State& state : compiled.saved_states()) {
    const TensorType whole{state.type.dtype, state.global_shape()};
    tensors.push_back({.name = state.name,
                       .type = whole,
                       .role = ir::name_of(state.category),
                       .start = ir::all_of(whole.shape).start,
                       .extent = whole.shape,
                       .bytes = model.states.at(state.name),
                       .sparse = true});
  }
  constexpr std::size_t kStaging = 256 * io::kStagingAlignment;
  const std::unique_ptr<void, decltype(&std::free)> staging(std::aligned_alloc(io::kStagingAlignment, kStaging),
                                                            &std::free);
  if (!staging) throw std::bad_alloc();
  const train::SavedShard shard{
      0, train::shard_file(0), std::move(tensors), {}, {static_cast<std::byte*>(staging.get()), kStaging}};
  train::write_checkpoint(run, train::describe_checkpoint(config, 0), {&shard, 1}, {});
}

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
  train::check_is_there(from, from);
  Model model{train::load_config(from, overrides, registry.models), {}};
  if (model.config.memory.weights != train::StoredWeights::full)
    refuse("{}: memory.weights = \"{}\": its weights are quantized already; start from the run it was made of", from,
           model.config.memory.weights);
  train::set_mesh_of_use(model.config, overrides);
  train::Config own = model.config;
  own.train.micro_batch = kRows;
  own.train.batch = kRows * train::mesh_of(own).size_of(ir::kDataAxis);
  train::TrainedModel trained(own, registry, {.purpose = train::Purpose::evaluate}, from, step, log);
  model.config.model = trained.config().model;
  for (const ir::State& state : trained.compiled().saved_states())
    model.states[state.name] = trained.session().state(state.name);
  return model;
}

void check_target(const fs::path& from, const fs::path& run, bool overwrite) {
  std::error_code none;
  if (fs::equivalent(from, run, none))
    refuse("--out {} is the model that is made smaller; name another folder, which leaves it as it is", run.string());
  if (train::is_overwritten(run, from))
    refuse("--out {} would replace a part of {}, the model that is made smaller; name another folder", run.string(),
           from.string());
  train::check_takes_run(run, "--out " + run.string());
  train::check_replaces_runs_only(run, "--out " + run.string(), true);
  if (train::holds_run(run) && !overwrite)
    refuse("--out {} already holds a run; give --overwrite to replace it, or another folder", run.string());
  if (fs::exists(run) && !fs::is_directory(run)) refuse("--out {} is there already and not a folder", run.string());
  train::check_writable(run, "--out " + run.string());
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
  // Before a run that is there is overwritten: what this one is refused for leaves it as it is.
  Running running(model, registry, {.purpose = train::Purpose::evaluate});
  train::write_whole_run(
      run, config, options.overwrite ? train::RunMode::overwrite : train::RunMode::fresh,
      about.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n",
      [&] { write_states(model, running.compiled(), run, config); },
      [&] {
        if (train::holds_run(options.from))
          train::copy_tokenizer_files(options.from, run);
        else
          train::keep_tokenizer_files(options.from, run);
      });
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

std::uint64_t stored_bytes(const Model& model, const train::Compiled& compiled) {
  std::uint64_t bytes = 0;
  for (const ir::State& state : compiled.saved_states()) {
    const std::size_t dense = model.states.at(state.name).size();
    if (state.type.dtype != DType::f32) {
      bytes += dense;
      continue;
    }
    bytes += std::min(dense, io::ZeroPacker(model.floats(state.name)).bytes());
  }
  return bytes;
}

}  // namespace trireme::compress
