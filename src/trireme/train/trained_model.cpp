#include "trireme/train/trained_model.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/room.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/same_run.h"

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

namespace {

// Of a run that goes on elsewhere, processes might find different ones; looking takes as long as reading it.
std::optional<std::int64_t> newest_for_all(const std::string& from, const LogSink& log, comm::Communicator* world) {
  if (world == nullptr) return newest_checkpoint(from, log);
  const auto text = [](std::optional<std::int64_t> step) { return step ? std::to_string(*step) : std::string(); };
  const std::string step = made_by_first([&] { return text(newest_checkpoint(from, log)); }, *world);
  return step.empty() ? std::nullopt : std::optional<std::int64_t>(std::stoll(step));
}

bool can_generate(const ir::Mesh& mesh) {
  return std::all_of(mesh.axes.begin(), mesh.axes.end(), [](const ir::Mesh::Axis& axis) {
    return axis.name == ir::kTensorAxis || axis.name == ir::kPipelineAxis;
  });
}

// As many shards as have whole heads, and stages of them. Codes are not sharded.
std::string mesh_to_generate(const Config& config, int processes) {
  const bool codes = config.memory.weights != StoredWeights::full;
  const int tp = codes ? 1 : std::gcd(processes, static_cast<int>(std::max<std::int64_t>(1, config.model.heads)));
  return fmt::format("{}={},{}={}", ir::kPipelineAxis, processes / tp, ir::kTensorAxis, tp);
}

}  // namespace

TrainedModel::TrainedModel(Config config, const Registry& registry, CompileOptions options, const std::string& from,
                           std::optional<std::int64_t> step, const LogSink& log, comm::Communicator* world)
    : config_(std::move(config)) {
  const bool run = holds_run(from);
  if (!run && !is_huggingface_folder(from))
    refuse("{}: there is no run and no Hugging Face model in that folder", from);
  if (!run && step) refuse("--step {}: {} is not a run folder and has no checkpoints", *step, from);
  if (run) {
    if (step) check_checkpoint(from, *step);
    step_ = step ? step : newest_for_all(from, log, world);
    if (!step_) refuse("{}: the run has no checkpoint", from);
  }
  options.threads = compute_threads(config_, world == nullptr ? 0 : options.local_ranks);
  if (world != nullptr) options.transport = world->transport();
  resolve_model(config_, config_.model.vocab, registry.models);
  compiled_ = compile(config_, registry, options);
  const Site site{.threads = options.threads,
                  .alone = world == nullptr,
                  .local_ranks = options.local_ranks,
                  .rank = world == nullptr ? 0 : world->rank()};
  if (const std::vector<std::string> lacking = shortfalls_of_use(compiled_, site); !lacking.empty())
    refuse("{}: {}", from, lacking.front());
  if (world != nullptr) check_same_programs(compiled_, *world);
  session_ = std::make_unique<Session>(compiled_, SessionOptions{.world = world,
                                                                 .threads = options.threads,
                                                                 .disk = offload_folder(config_, from),
                                                                 .allreduce = algorithm_of(config_),
                                                                 .timeout = config_.parallel.timeout.count});
  if (run)
    load_checkpoint(from, *step_, *session_);
  else
    load_huggingface(from, *session_);
}

void set_mesh_of_use(Config& config, std::span<const std::string> settings, Purpose purpose, int processes) {
  const auto names_mesh = [](const std::string& setting) { return setting.starts_with("parallel.mesh="); };
  const bool named = std::any_of(settings.begin(), settings.end(), names_mesh) && !config.parallel.any_mesh();
  const bool generates = purpose == Purpose::generate;
  config.parallel.zero = 0;
  if (!named) {
    const ir::Mesh trained = mesh_of(config);
    const bool usable = processes > 1 && trained.ranks() == processes && (!generates || can_generate(trained));
    if (!usable) config.parallel.mesh = generates && processes > 1 ? mesh_to_generate(config, processes) : "auto";
  }
  if (processes == 1) return;
  // Ranks beyond the mesh train, and are not counted.
  const ir::Mesh mesh = mesh_of(config, processes);
  if (mesh.ranks() != processes)
    refuse("parallel.mesh = \"{}\" has {} rank{}, and {} were launched; launch {}, or set parallel.mesh = \"auto\"",
           config.parallel.mesh, mesh.ranks(), mesh.ranks() == 1 ? "" : "s", processes, mesh.ranks());
  config.parallel.mesh = mesh.str();
}

std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config) {
  const bool named = config.data.tokenizer != "bytes";
  if (config.data.tokenizer == "none" || (!named && !config.data.tokens.empty())) return nullptr;
  return data::open_tokenizer(config.data.tokenizer, "data.tokenizer");
}

}  // namespace trireme::train
