#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "trireme/train/config.h"

namespace trireme::train {

enum class RunMode { fresh, resume, overwrite };

// Where a run will be written. Resuming or overwriting with a run folder as the configuration: there. Else output.dir;
// with an empty one runs/<name>, then -2, -3 … for a fresh run, and the newest of them to resume or overwrite. A given
// folder that holds a run is refused without resume or overwrite.
std::filesystem::path choose_run_folder(const Config& config, RunMode mode);

// Refuses a folder that holds a run, for one that starts.
void check_is_free(const std::filesystem::path& folder);
// Refuses the folder of a Hugging Face model: with a run in it, it would be taken for that alone. `given` is what a
// person has called it: "output.dir = \"gpt2\"".
void check_takes_run(const std::filesystem::path& folder, const std::string& given);

// Refuses a folder in which a run would replace what is no run's: a configuration without a run, or files of names that
// runs give to theirs. `copies_tokenizer`: a run from a model's folder or file has its tokenizer too. Changes nothing.
void check_replaces_runs_only(const std::filesystem::path& folder, const std::string& given, bool copies_tokenizer);

// The right to write to a run folder, until it goes: one process at a time. A killed process loses it.
class RunLock {
 public:
  RunLock() = default;
  // Refuses a folder that another one holds, and one that cannot be locked.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  bool holds() const { return handle_ >= 0; }
  RunLock(RunLock&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

 private:
  int handle_ = -1;
};

// Lets runs/latest lead to a folder in runs/. It follows what is trained: of an import or a compressed copy the source
// stays the latest, so that the same command can be given twice.
void point_latest_to(const std::filesystem::path& folder);

// Refuses a folder that could not be made or written, by what is there now: before work whose result goes there.
// `given` is what a person has called it: "output.dir = \"runs/mine\"".
void check_writable(const std::filesystem::path& folder, const std::string& given);
// The same of a file, whose folders are made with it.
void check_place(const std::filesystem::path& file, const std::string& given);

// Makes the folder where it is not there yet, with config.toml and run.json in it from the first moment, and takes it
// for this process: a run that is killed at any time can be resumed. Refuses one that cannot be written.
[[nodiscard]] RunLock lock_run_folder(const std::filesystem::path& folder, const Config& config,
                                      const std::string& run_json);
// Writes the fixed files of a folder that this process has locked: config.toml (resolved) and run.json (`run_json`).
// Overwriting removes the old run's files first, resuming what a killed run left half written. Refuses a folder that
// cannot be written.
void write_run_files(const std::filesystem::path& folder, const Config& config, RunMode mode,
                     const std::string& run_json);
// Removes what processes that were killed have left in the folder of a run, half written. For the process that holds
// its lock.
void remove_left_over(const std::filesystem::path& folder);
// As write_run_files where a run is replaced by one that has its first checkpoint there already, of `step`: that one
// stays.
void replace_run_files(const std::filesystem::path& folder, const Config& config, const std::string& run_json,
                       std::int64_t step);
// Both. Refuses the folder of a Hugging Face model.
[[nodiscard]] RunLock open_run_folder(const std::filesystem::path& folder, const Config& config, RunMode mode,
                                      const std::string& run_json);

// Writes a run that has its state from the start: `checkpoint` writes that, of step 0, and `more` the files next to it.
// A run that is replaced stays until the new checkpoint is there.
void write_whole_run(const std::filesystem::path& folder, const Config& config, RunMode mode,
                     const std::string& run_json, const std::function<void()>& checkpoint,
                     const std::function<void()>& more);

bool holds_run(const std::filesystem::path& folder);

// Refuses to resume a run whose weights are codes: what they were made of is not there.
void check_has_weights(const std::filesystem::path& folder, const models::Families& families);
// Refuses to resume with a changed model, data, seed or optimizer, by name.
void check_resumable(const std::filesystem::path& folder, const Config& config, const models::Families& families);

}  // namespace trireme::train
