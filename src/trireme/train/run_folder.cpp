#include "trireme/train/run_folder.h"

#include <array>

#include "trireme/core/error.h"
#include "trireme/io/atomic_file.h"

namespace trireme::train {

namespace fs = std::filesystem;

bool holds_run(const fs::path& folder) {
  for (const char* part : {"config.toml", "metrics.jsonl", "checkpoints"})
    if (fs::exists(folder / part)) return true;
  return false;
}

fs::path choose_run_folder(const Config& config, RunMode mode) {
  if (!config.output.dir.empty()) {
    const fs::path given = config.output.dir;
    if (mode == RunMode::fresh && holds_run(given))
      refuse(
          "output.dir = \"{}\" holds a run already; give --resume to continue it, --overwrite to replace it, or "
          "another folder",
          given.string());
    return given;
  }
  const fs::path first = fs::path("runs") / config.name;
  fs::path candidate = first;
  fs::path newest = first;
  for (int n = 2; holds_run(candidate); ++n) {
    newest = candidate;
    candidate = first.string() + "-" + std::to_string(n);
  }
  return mode == RunMode::fresh ? candidate : newest;
}

void open_run_folder(const fs::path& folder, const Config& config, RunMode mode, const std::string& run_json) {
  try {
    fs::create_directories(folder);
    if (mode == RunMode::overwrite)
      for (const char* part : {"config.toml", "run.json", "metrics.jsonl", "checkpoints", "log.txt"})
        fs::remove_all(folder / part);
    io::write_file_atomically((folder / "config.toml").string(), to_toml(config));
    io::write_file_atomically((folder / "run.json").string(), run_json);
  } catch (const fs::filesystem_error& e) {
    refuse("output.dir = \"{}\" cannot be written: {}", folder.string(), e.code().message());
  } catch (const Error& e) {
    refuse("output.dir = \"{}\" cannot be written: {}", folder.string(), e.message());
  }
  if (folder.parent_path() == "runs") {
    std::error_code ignored;  // a convenience: a file system without links does without
    fs::remove("runs/latest", ignored);
    fs::create_directory_symlink(folder.filename(), "runs/latest", ignored);
  }
}

void check_resumable(const fs::path& folder, const Config& config) {
  const Config before = load_config(folder.string());
  constexpr std::array<std::string_view, 9> fixed = {"model.",          "data.",       "train.seed",
                                                     "train.optimizer", "train.batch", "train.weight_decay",
                                                     "train.eps",       "train.betas", "train.momentum"};
  for (const std::string& key : differing_keys(before, config))
    for (const std::string_view prefix : fixed)
      if (key.starts_with(prefix))
        refuse("{} differs from the run in {}; a resumed run keeps its model, data, seed and optimizer", key,
               folder.string());
}

}  // namespace trireme::train
