#include "trireme/train/checkpoint.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/io/atomic_file.h"
#include "trireme/io/safetensors.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& run, std::int64_t step) {
  return run / "checkpoints" / fmt::format("step-{:08}", step);
}

// The step of "step-00000100"; nothing for other names.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", error))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

}  // namespace

void save_checkpoint(const fs::path& run, Session& session, std::int64_t step, std::int64_t keep) {
  const fs::path target = folder_of(run, step);
  if (fs::exists(target)) return;  // the same step gives the same state
  const fs::path aside = target.string() + ".partial";
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  fs::create_directories(aside);
  std::vector<io::TensorToWrite> tensors;
  nlohmann::ordered_json manifest = {{"format", 1}, {"step", step}};
  nlohmann::ordered_json& listed = manifest["tensors"] = nlohmann::ordered_json::object();
  for (const ir::State& state : session.compiled().module.states) {
    if (!state.saved || state.step_local || !state.derived_from.empty()) continue;
    tensors.push_back({state.name, state.type, session.state(state.name)});
    const std::vector<std::int64_t> extents(state.type.shape.begin(), state.type.shape.end());
    listed[state.name] = {{"shape", extents}, {"file", "state.safetensors"}};
  }
  io::write_safetensors((aside / "state.safetensors").string(), tensors);
  io::write_file_atomically((aside / "manifest.json").string(), manifest.dump(1) + "\n");
  fs::rename(aside, target);
  io::sync_folder(target.parent_path().string());
  const std::vector<std::int64_t> steps = steps_in(run);
  for (std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)); i < steps.size(); ++i)
    fs::remove_all(folder_of(run, steps[i]), ignored);
}

std::optional<std::int64_t> newest_checkpoint(const fs::path& run, const LogSink& sink) {
  for (const std::int64_t step : steps_in(run)) {
    const fs::path folder = folder_of(run, step);
    try {
      std::ifstream in(folder / "manifest.json");
      const nlohmann::json manifest = nlohmann::json::parse(in, nullptr, false);
      if (!manifest.is_object() || manifest.value("step", std::int64_t{-1}) != step)
        fail("its manifest.json is not readable");
      const io::SafetensorsFile file((folder / "state.safetensors").string());
      return step;
    } catch (const std::exception& e) {
      log(sink, LogLevel::warning, "skipping {}: {}", folder.string(), e.what());
    }
  }
  return std::nullopt;
}

void load_checkpoint(const fs::path& run, std::int64_t step, Session& session) {
  const io::SafetensorsFile file((folder_of(run, step) / "state.safetensors").string());
  for (const ir::State& state : session.compiled().module.states) {
    if (!state.saved || state.step_local || !state.derived_from.empty()) continue;
    const auto& tensor = file.at(state.name);
    if (tensor.type != state.type)
      refuse("{}: '{}' is {}, the model has {}", file.path(), state.name, tensor.type.str(), state.type.str());
    const auto bytes = file.bytes(tensor);
    std::memcpy(session.state(state.name).data(), bytes.data(), bytes.size());
  }
  session.derive();
}

}  // namespace trireme::train
