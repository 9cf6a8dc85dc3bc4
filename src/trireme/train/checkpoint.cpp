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

// Why the checkpoint of a step cannot be used; nothing when it can.
std::optional<std::string> fault(const fs::path& run, std::int64_t step) {
  const fs::path folder = folder_of(run, step);
  try {
    std::ifstream in(folder / "manifest.json");
    const nlohmann::json manifest = nlohmann::json::parse(in, nullptr, false);
    if (!manifest.is_object() || manifest.value("step", std::int64_t{-1}) != step)
      return "its manifest.json is not readable";
    const io::SafetensorsFile file((folder / "state.safetensors").string());
    return std::nullopt;
  } catch (const std::exception& e) {
    return e.what();
  }
}

void write_checkpoint(const fs::path& aside, Session& session, std::int64_t step) {
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
}

}  // namespace

void save_checkpoint(const fs::path& run, Session& session, std::int64_t step, std::int64_t keep) {
  const fs::path target = folder_of(run, step);
  const fs::path aside = target.string() + ".partial";
  std::error_code ignored;
  // The same step gives the same state.
  if (!fs::exists(target) || fault(run, step)) try {
      fs::remove_all(aside);
      write_checkpoint(aside, session, step);
      fs::remove_all(target);
      fs::rename(aside, target);
      io::sync_folder(target.parent_path().string());
    } catch (const fs::filesystem_error& e) {
      fs::remove_all(aside, ignored);
      fail("the checkpoint {} cannot be written: {}", target.string(), e.code().message());
    } catch (Error& e) {
      fs::remove_all(aside, ignored);
      throw e.within(fmt::format("the checkpoint {} cannot be written", target.string()));
    }
  // A later one can only be a broken one, left behind when the run was resumed: it does not count.
  std::vector<std::int64_t> steps = steps_in(run);
  std::erase_if(steps, [&](std::int64_t other) { return other > step; });
  for (std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)); i < steps.size(); ++i)
    fs::remove_all(folder_of(run, steps[i]), ignored);
}

std::optional<std::int64_t> newest_checkpoint(const fs::path& run, const LogSink& sink) {
  for (const std::int64_t step : steps_in(run)) {
    const auto wrong = fault(run, step);
    if (!wrong) return step;
    log(sink, LogLevel::warning, "skipping {}: {}", folder_of(run, step).string(), *wrong);
  }
  return std::nullopt;
}

void load_checkpoint(const fs::path& run, std::int64_t step, Session& session) {
  if (const std::vector<std::int64_t> steps = steps_in(run); std::find(steps.begin(), steps.end(), step) == steps.end())
    refuse("{} has no checkpoint of step {}; there {} {}", run.string(), step, steps.size() == 1 ? "is one of" : "are",
           steps.empty() ? "none" : fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), ", ")));
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
