#include "trireme/cli/training_settings.h"

#include <algorithm>
#include <array>

#include "trireme/cli/output.h"
#include "trireme/cli/processes.h"
#include "trireme/core/error.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/trained_model.h"

namespace trireme::cli {
namespace {

bool is_used(std::string_view key) {
  constexpr std::array<std::string_view, 3> kSections = {"model.", "data.", "parallel.sharding"};
  constexpr std::array<std::string_view, 16> kKeys = {
      "train.precision",  "memory.weights",    "memory.weight_bits", "memory.linear_inputs",
      "memory.kv_cache",  "runtime.device",    "runtime.threads",    "parallel.mesh",
      "parallel.stages",  "parallel.sequence", "parallel.async_tp",  "parallel.stage_dtype",
      "parallel.overlap", "parallel.bucket",   "parallel.allreduce", "parallel.timeout"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end() ||
         std::any_of(kSections.begin(), kSections.end(), [&](auto section) { return key.starts_with(section); });
}

}  // namespace

std::vector<std::string> settings_of_use(const Context& context, std::string_view command) {
  std::vector<std::string> used;
  train::Config any;
  for (const std::string& setting : context.overrides) {
    const std::string_view key = std::string_view(setting).substr(0, setting.find('='));
    const bool generation = key == "memory.kv_cache" && command == "eval";
    const bool ranks = key.starts_with("parallel.") && command == "compress";  // which has one
    if (is_used(key) && !generation && !ranks) {
      used.push_back(setting);
      continue;
    }
    try {
      train::apply_setting(any, setting, context.registry->models);  // a key and a value all the same
    } catch (Error& e) {
      throw e.within("command line");
    }
    if (is_first_process())
      warn(LogLevel::warning, fmt::format("{} has no effect on trireme {}: it is for {}", key, command,
                                          generation ? "generation" : "training"));
  }
  return used;
}

train::Config load_for_use(const Context& context, const std::string& from, const std::vector<std::string>& settings,
                           train::Purpose purpose, int processes) {
  // The ranks that use a model need not go with the batch that it was trained by.
  std::vector<std::string> others, meshes;
  for (const std::string& setting : settings)
    (setting.starts_with("parallel.mesh=") ? meshes : others).push_back(setting);
  train::Config config = train::load_config(from, others, context.registry->models);
  const train::Config stored = train::load_config(from, {}, context.registry->models);
  if (config.memory.linear_inputs != stored.memory.linear_inputs &&
      config.memory.linear_inputs != train::LinearInputs::full)
    refuse(
        "memory.linear_inputs = \"{}\": {} has no ranges of what its layers read; `trireme compress RUN --out DIR "
        "--weights "
        "int8 --activations int8` finds them, RUN being what it was made of",
        config.memory.linear_inputs, from);
  if (config.memory.weights != stored.memory.weights)
    refuse(
        "memory.weights = \"{}\": the weights of {} are stored in another way; `trireme compress {} --out DIR "
        "--weights {}` makes a run that stores them so",
        config.memory.weights, from, from, config.memory.weights);
  for (const std::string& setting : meshes) train::apply_setting(config, setting, context.registry->models);
  train::set_mesh_of_use(config, settings, purpose, processes);
  train::check_heads(config, context.registry->models);
  return config;
}

train::Fact device_fact(const train::Config& config) {
  return {"the device", device::name_of(train::device_of(config, processes_here()))};
}

}  // namespace trireme::cli
