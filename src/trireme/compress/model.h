#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/core/log.h"
#include "trireme/train/session.h"

namespace trireme::compress {

using States = std::map<std::string, std::vector<std::byte>>;

// A trained model in memory: what each method of this folder takes and gives. `states` has every saved state that an
// evaluation of `config` has, by name and in its own type, so a method that changes shapes or types changes both.
struct Model {
  train::Config config;
  States states;

  std::span<const float> floats(const std::string& name) const;
  std::span<float> floats(const std::string& name);
};

// Of a run folder (the checkpoint of `step`, or the newest) or a Hugging Face folder. Refuses a model whose weights are
// quantized already: nothing is gained from rounding twice.
Model load_model(const std::string& from, std::span<const std::string> overrides, const train::Registry& registry,
                 std::optional<std::int64_t> step, const LogSink& log);

// Where a compressed model would be written: refuses what is there already before any work begins.
void check_target(const std::filesystem::path& from, const std::filesystem::path& run, bool overwrite);

struct SaveOptions {
  std::string from;  // the run or folder it was made of, which has the tokenizer
  std::string command;
  bool overwrite = false;
};
// Writes a run folder that `generate`, `eval` and `bench generate` take, and `train --resume` where no weight is
// quantized: the configuration, the states as the checkpoint of step 0, the tokenizer.
void save_model(const Model& model, const std::filesystem::path& run, const SaveOptions& options,
                const train::Registry& registry);

// A model compiled for one purpose, with its weights in place.
class Running {
 public:
  // `registry` must outlive it.
  Running(const Model& model, const train::Registry& registry, train::CompileOptions options);

  const train::Compiled& compiled() const { return *compiled_; }
  train::Session& session() { return *session_; }

 private:
  std::unique_ptr<train::Compiled> compiled_;
  std::unique_ptr<train::Session> session_;
};

// Bytes that a checkpoint has for all states: tensors of many zeros are stored without them.
std::uint64_t stored_bytes(const Model& model, const train::Compiled& compiled);

}  // namespace trireme::compress
