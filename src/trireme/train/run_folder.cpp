#include "trireme/train/run_folder.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "trireme/core/aside.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/convert.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/overwritten.h"

namespace trireme::train {

namespace fs = std::filesystem;

bool holds_run(const fs::path& folder) {
  // A link counts wherever it leads: what it stands for may be away for a while.
  std::error_code unknown;
  for (const char* part : {"config.toml", "metrics.jsonl", "checkpoints"})
    if (fs::exists(fs::symlink_status(folder / part, unknown))) return true;
  return false;
}

namespace {

// Without a trailing slash, and what a link such as runs/latest points to.
fs::path cleaned(const fs::path& path) {
  fs::path result = path.lexically_normal();
  if (!result.has_filename()) result = result.parent_path();
  std::error_code unknown;
  if (fs::is_symlink(result, unknown) && fs::is_directory(result, unknown))
    result = (result.parent_path() / fs::read_symlink(result)).lexically_normal();
  return result;
}

// The highest N of the runs <first>, <first>-2, …, <first>-N; 0: there is none.
int newest_number(const fs::path& first) {
  const std::string name = first.filename().string();
  int newest = holds_run(first) ? 1 : 0;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(first.parent_path(), missing)) {
    const std::string other = entry.path().filename().string();
    if (!other.starts_with(name + "-")) continue;
    int number = 0;
    const char* end = other.data() + other.size();
    const auto [rest, error] = std::from_chars(other.data() + name.size() + 1, end, number);
    if (error == std::errc() && rest == end && number > newest && holds_run(entry.path())) newest = number;
  }
  return newest;
}

// Says of a folder that it is being made into a run's, and not a person's; taken away when that is done.
constexpr const char* kMarker = ".trireme-new";

bool is_in_the_making(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / kMarker, unknown);
}

void mark_as_in_the_making(const fs::path& folder) {
  write_file_atomically((folder / kMarker).string(), "a run folder in the making; trireme removes it if it is left\n");
}

// A run has written more from its first moment on.
bool holds_configuration_alone(const fs::path& folder) {
  std::error_code unknown;
  return !is_in_the_making(folder) && fs::exists(fs::symlink_status(folder / "config.toml", unknown)) &&
         std::none_of(kOverwritten.begin(), kOverwritten.end(),
                      [&](std::string_view part) { return fs::exists(fs::symlink_status(folder / part, unknown)); });
}

void check_holds_no_configuration_alone(const fs::path& folder, const std::string& given) {
  if (holds_configuration_alone(folder))
    refuse("{} has a config.toml and no run: a run there would replace that file with its own; name another folder",
           given);
}

}  // namespace

void check_is_free(const fs::path& folder) {
  check_holds_no_configuration_alone(folder, fmt::format("output.dir = \"{}\"", folder.string()));
  if (holds_run(folder))
    refuse(
        "output.dir = \"{}\" already holds a run; give --resume to continue it, --overwrite to replace it, or another "
        "folder",
        folder.string());
}

void check_takes_run(const fs::path& folder, const std::string& given) {
  if (is_huggingface_folder(folder))
    refuse("{} holds a Hugging Face model (a config.json), which a run there would hide; name another folder", given);
}

void check_replaces_runs_only(const fs::path& folder, const std::string& given, bool copies_tokenizer) {
  check_holds_no_configuration_alone(folder, given);
  if (holds_run(folder) || is_in_the_making(folder)) return;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown)) {
    const std::string name = entry.path().filename().string();
    if (std::find(kOverwritten.begin(), kOverwritten.end(), name) != kOverwritten.end() ||
        (copies_tokenizer && is_tokenizer_file(name)))
      refuse("{} holds no run, and has a {} that a run there would replace; move it away, or name another folder",
             given, name);
  }
}

fs::path choose_run_folder(const Config& config, RunMode mode) {
  if (!config.run.empty() && mode != RunMode::fresh) return cleaned(config.run);
  if (!config.output.dir.empty()) {
    fs::path given = cleaned(config.output.dir);
    if (mode == RunMode::fresh) check_is_free(given);
    check_takes_run(given, fmt::format("output.dir = \"{}\"", given.string()));
    return given;
  }
  const fs::path first = fs::path("runs") / config.name;
  const int number = newest_number(first) + (mode == RunMode::fresh ? 1 : 0);
  return number <= 1 ? first : fs::path(first.string() + "-" + std::to_string(number));
}

RunLock::RunLock(const fs::path& folder) : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (handle_ >= 0 && ::flock(handle_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (handle_ >= 0) ::close(std::exchange(handle_, -1));
  if (error == EWOULDBLOCK)
    refuse("output.dir = \"{}\": another process is training there; stop it first, or give another folder",
           folder.string());
  refuse("output.dir = \"{}\" cannot be locked against other processes: {}; give a folder on another file system",
         folder.string(), std::strerror(error));
}

RunLock::~RunLock() {
  if (handle_ >= 0) ::close(handle_);
}

namespace {

// Does what makes or writes a run folder, and says whose fault it is when that cannot be done.
template <class F>
void attempt(const fs::path& folder, F&& action) {
  try {
    action();
  } catch (const fs::filesystem_error& e) {
    refuse("output.dir = \"{}\" cannot be written: {}", folder.string(), e.code().message());
  } catch (const Error& e) {
    if (e.kind() == Error::Kind::request) throw;
    refuse("output.dir = \"{}\" cannot be written: {}", folder.string(), e.message());
  }
}

}  // namespace

void check_writable(const fs::path& folder, const std::string& given) {
  std::error_code unknown;
  fs::path there = fs::absolute(folder, unknown);
  while (!fs::exists(fs::symlink_status(there, unknown)) && there.has_relative_path()) there = there.parent_path();
  const bool is_folder = fs::is_directory(there, unknown);
  if (!is_folder || ::access(there.c_str(), W_OK | X_OK) != 0)
    refuse("{} cannot be written: {}: {}", given, there.string(), is_folder ? std::strerror(errno) : "Not a directory");
  // Some folders take no files of anybody, whatever their permissions say (/proc).
  try {
    const AtomicFile probe((there / ".trireme-probe").string());
  } catch (const Error&) {
    refuse("{} cannot be written: {} takes no files", given, there.string());
  }
}

void check_place(const fs::path& file, const std::string& given) {
  std::error_code unknown;
  if (fs::exists(file, unknown)) return check_file_writable(file.string(), given);
  check_writable(fs::absolute(file, unknown).parent_path(), given);
}

namespace {

void write_about(const fs::path& folder, const Config& config, const std::string& run_json) {
  write_file_atomically((folder / "config.toml").string(), to_toml(config));
  // Relative paths of config.toml are those of the folder we are in.
  auto about = parse_ordered_json(run_json);
  std::error_code unknown;
  about["folder"] = fs::current_path(unknown).string();
  write_file_atomically((folder / "run.json").string(),
                        about.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

constexpr std::string_view kNew = "new";

// A folder that appears with its files. Where another process makes it at the same time, that one's stays.
void make_run_folder(const fs::path& folder, const Config& config, const std::string& run_json) {
  const fs::path aside = make_aside_folder(folder.string(), kNew);
  std::error_code ignored;
  try {
    mark_as_in_the_making(aside);
    write_about(aside, config, run_json);
    std::error_code there;
    fs::rename(aside, folder, there);
    if (there && !fs::is_directory(folder, ignored)) throw fs::filesystem_error("rename", folder, there);
    sync_folder(fs::absolute(aside).parent_path().string());
  } catch (...) {
    fs::remove_all(aside, ignored);
    throw;
  }
  fs::remove_all(aside, ignored);
  fs::remove(folder / kMarker, ignored);
}

// A process that was killed while it made a folder here has left it under the other name.
void remove_abandoned(const fs::path& folder) {
  std::vector<fs::path> abandoned;
  std::error_code ignored;
  const fs::path parent = folder.parent_path();
  for (const fs::directory_entry& entry : fs::directory_iterator(parent.empty() ? "." : parent, ignored))
    if (is_abandoned(entry.path().filename().string(), kNew) && is_in_the_making(entry.path()))
      abandoned.push_back(entry.path());
  for (const fs::path& path : abandoned) fs::remove_all(path, ignored);
}

}  // namespace

RunLock lock_run_folder(const fs::path& folder, const Config& config, const std::string& run_json) {
  RunLock lock;
  attempt(folder, [&] {
    std::error_code unknown;
    remove_abandoned(folder);
    if (!fs::exists(fs::symlink_status(folder, unknown))) make_run_folder(folder, config, run_json);
    fs::create_directories(folder);
    lock = RunLock(folder);
    restore_replaced(folder);
  });
  return lock;
}

namespace {

// All of a run but run.json, which tells it from a configuration, and the checkpoint of a step that is not its own.
void remove_run(const fs::path& folder, std::optional<std::int64_t> kept) {
  for (const std::string_view part : kOverwritten) {
    if (part == "run.json") continue;
    if (part == "checkpoints" && kept) {
      for (const std::int64_t step : checkpoint_steps(folder))
        if (step != *kept) remove_checkpoint(checkpoint_folder(folder, step));
    } else {
      fs::remove_all(folder / part);
    }
  }
}

}  // namespace

void replace_run_files(const fs::path& folder, const Config& config, const std::string& run_json, std::int64_t step) {
  attempt(folder, [&] { remove_run(folder, step); });
  write_run_files(folder, config, RunMode::resume, run_json);
}

void remove_left_over(const fs::path& folder) {
  trireme::remove_unfinished(folder.string());
  remove_unfinished(folder);
}

void write_run_files(const fs::path& folder, const Config& config, RunMode mode, const std::string& run_json) {
  attempt(folder, [&] {
    // The configuration is replaced last: until then what is left is still the old run, and never none.
    if (mode == RunMode::overwrite) remove_run(folder, std::nullopt);
    remove_left_over(folder);
    if (!holds_run(folder)) mark_as_in_the_making(folder);
    write_about(folder, config, run_json);
    fs::remove(folder / kMarker);
  });
}

void point_latest_to(const fs::path& folder) {
  if (folder.parent_path() != "runs" || folder.filename() == "latest") return;
  std::error_code ignored;  // a convenience: a file system without links does without
  if (fs::is_symlink("runs/latest", ignored)) fs::remove("runs/latest", ignored);  // else it is a person's own
  fs::create_directory_symlink(folder.filename(), "runs/latest", ignored);
}

RunLock open_run_folder(const fs::path& folder, const Config& config, RunMode mode, const std::string& run_json) {
  check_takes_run(folder, folder.string());
  RunLock lock = lock_run_folder(folder, config, run_json);
  write_run_files(folder, config, mode, run_json);
  return lock;
}

void write_whole_run(const fs::path& folder, const Config& config, RunMode mode, const std::string& run_json,
                     const std::function<void()>& checkpoint, const std::function<void()>& more) {
  check_takes_run(folder, folder.string());
  const bool replaces = holds_run(folder);
  const RunLock lock = lock_run_folder(folder, config, run_json);
  if (!replaces) {
    write_run_files(folder, config, mode, run_json);
    more();
  }
  checkpoint();
  if (replaces) {
    replace_run_files(folder, config, run_json, 0);
    more();
  }
}

void check_has_weights(const fs::path& folder, const models::Families& families) {
  if (!holds_run(folder)) return;
  const Config before = load_config(folder.string(), {}, families);
  if (before.memory.weights != StoredWeights::full)
    refuse(
        "{} has quantized weights (memory.weights = \"{}\"), which are not trained any further; resume the run that it "
        "was made of (with train.quantize = \"{}\" it trains to be stored so)",
        folder.string(), before.memory.weights, before.memory.weights);
}

void check_resumable(const fs::path& folder, const Config& config, const models::Families& families) {
  const Config before = load_config(folder.string(), {}, families);
  // In a copy of the folder that it was started in, a run reads the copies.
  const Config written = load_run_config(folder.string(), {}, families, RunPaths::as_written);
  constexpr std::array<std::string_view, 12> fixed = {"init.",           "model.",      "data.",
                                                      "prune.",          "distil.",     "train.seed",
                                                      "train.optimizer", "train.batch", "train.weight_decay",
                                                      "train.eps",       "train.betas", "train.momentum"};
  const auto keeps_own_momentum = [](const Config& c) {
    return c.train.optimizer == Optimizer::sgd &&
           (c.parallel.compress == Compress::onebit || c.parallel.compress == Compress::topk);
  };
  if (keeps_own_momentum(before) && !keeps_own_momentum(config))
    refuse(
        "parallel.compress = \"{}\", but the run in {} has \"{}\", with which each rank has a momentum of its own and "
        "the run none: it goes on with \"onebit\" or \"topk:FRACTION\" only",
        config.parallel.compress, folder.string(), before.parallel.compress);
  // Imported weights, and nothing trained: how to train them is still open.
  const bool untrained = checkpoint_steps(folder) == std::vector<std::int64_t>{0};
  for (const std::string& key : differing_keys(before, config)) {
    if (untrained && (!key.starts_with("model.") || key == "model.dropout")) continue;
    if (value_text(written, key) == value_text(config, key)) continue;
    for (const std::string_view prefix : fixed)
      if (key.starts_with(prefix))
        refuse(
            "{} = {}, but the run in {} has {}; a resumed run keeps its model, data, seed and optimizer{}", key,
            value_text(config, key), folder.string(), value_text(before, key),
            config.run.empty() ? fmt::format(": `trireme train {} --resume` takes them from it", folder.string()) : "");
  }
}

}  // namespace trireme::train
