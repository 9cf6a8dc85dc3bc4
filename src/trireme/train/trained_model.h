#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/core/log.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/train/session.h"

namespace trireme::train {

// Refuses a folder that is not there, with the nearest next to it that holds a run or a Hugging Face model. `given` is
// what a person wrote: "--from runs/latset".
void check_is_there(const std::string& from, const std::string& given);

// A model that was trained before, with its weights, compiled for one purpose:
//
//   Config config = load_config(from, overrides, registry.models);
//   TrainedModel model(config, registry, {.purpose = Purpose::generate, .sequence = 300}, from, step, log);
//   sample_tokens(model.session(), prompt, …);
//
// `from` is a run folder, whose checkpoint of `step` is read (the newest valid one where absent), or a Hugging Face
// folder. It runs on the mesh of the configuration, each rank a thread that reads its slices alone; "auto" is one rank.
// With `world` each rank is a process, this one among them: all make the model together, and use it together.
class TrainedModel {
 public:
  // `registry` must outlive the model.
  TrainedModel(Config config, const Registry& registry, CompileOptions options, const std::string& from,
               std::optional<std::int64_t> step, const LogSink& log, comm::Communicator* world = nullptr);

  const Config& config() const { return config_; }
  const Compiled& compiled() const { return compiled_; }
  Session& session() { return *session_; }
  // Nothing for a Hugging Face folder.
  std::optional<std::int64_t> step() const { return step_; }

 private:
  Config config_;
  Compiled compiled_;
  std::unique_ptr<Session> session_;
  std::optional<std::int64_t> step_;
};

// Whatever ranks trained a model, one uses it, unless the settings of this command name parallel.mesh. So many
// `processes` are the ranks that trained it where these are as many and can do what is asked for; else replicas that
// evaluate, or shards and stages that generate. Refuses a mesh of another number of ranks.
void set_mesh_of_use(Config& config, std::span<const std::string> settings, Purpose purpose = Purpose::evaluate,
                     int processes = 1);

// The tokenizer that goes with a configuration; null when it was trained on token files and names none.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config);

}  // namespace trireme::train
