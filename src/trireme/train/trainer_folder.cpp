#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <limits>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/compression.h"
#include "trireme/train/overwritten.h"
#include "trireme/train/same_run.h"
#include "trireme/train/trainer.h"

// What a run keeps in its folder, and how it comes back from it: checkpoints, resuming, run.json, algorithms.txt.
namespace trireme::train {
namespace {

constexpr const char* kAlgorithmsFile = "algorithms.txt";

std::string text_in(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Of a run: as it says, or else its newest checkpoint that says so. Empty: nothing is recorded.
std::string algorithms_of_run(const std::filesystem::path& run) {
  std::string text = text_in(run / kAlgorithmsFile);
  for (const std::int64_t step : checkpoint_steps(run)) {
    if (!text.empty()) break;
    try {
      text = io::read_manifest(checkpoint_folder(run, step)).algorithms;
    } catch (const Error&) {
      continue;  // a damaged one is reported where checkpoints are looked for
    }
  }
  return text;
}

// Of the run that wrote a checkpoint, at that step; nothing where another version wrote it.
std::optional<Config> config_of(const std::filesystem::path& checkpoint, const models::Families& families) {
  try {
    return parse_config(io::read_manifest(checkpoint).config, checkpoint.string(), {}, families);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What a run that goes on sets otherwise than a checkpoint of it: " with train.lr = 0.1 (it was 0.01)".
std::string changes_since(const std::filesystem::path& checkpoint, const Config& config,
                          const models::Families& families) {
  std::vector<std::string> changes;
  const std::optional<Config> before = config_of(checkpoint, families);
  if (!before) return "";
  for (const std::string& key : differing_keys(*before, config))
    if (!key.starts_with("output."))
      changes.push_back(fmt::format("{} = {} (it was {})", key, value_text(config, key), value_text(*before, key)));
  return changes.empty() ? "" : fmt::format(" with {}", fmt::join(changes, ", "));
}

}  // namespace

std::optional<std::int64_t> Trainer::find_checkpoint(const std::filesystem::path& folder) {
  std::vector<std::int64_t> broken;
  std::optional<std::int64_t> newest;
  if (leads())
    newest = newest_checkpoint(
        folder, [this](LogLevel level, const std::string& text) { note(level, text); }, &broken);
  if (const std::int64_t step = broadcast(newest.value_or(-1)); step >= 0) newest = step;
  if (folder == folder_) broken_ = broken;
  return newest;
}

void Trainer::settle_warmup(bool resumes) {
  if (!compresses_later(config_)) return;
  std::int64_t warmup = compression_warmup(config_);
  const std::vector<std::int64_t> saved = resumes && leads() ? checkpoint_steps(folder_) : std::vector<std::int64_t>{};
  if (const std::int64_t done = saved.empty() ? 0 : saved.front(); done > 0) {
    const Config before = load_config(folder_.string(), {}, registry_.models);
    warmup = compression_warmup(config_, before, done);
    if (!compresses_later(before))
      note(LogLevel::info,
           fmt::format("parallel.compress = \"{}\" begins after step {}: {} steps are done, and {} more "
                       "are its warm-up",
                       config_.parallel.compress, warmup, done, warmup - done));
  }
  config_.parallel.compress_warmup = broadcast(warmup);
}

void Trainer::load_step(const std::filesystem::path& folder, std::int64_t step) {
  LoadOptions load{.log = [this](LogLevel level, const std::string& text) { note(level, text); }};
  if (const std::optional<Config> saved = config_of(checkpoint_folder(folder, step), registry_.models))
    load.variance_scale =
        variance_scale(config_, *saved, step, compiled_.plan.updates_per_step(compiled_.micro_batches));
  load_checkpoint(folder, step, *session_, load);
  step_ = step;
  loaders_.clear();  // they are at another step
  if (folder == folder_) last_saved_ = Saved{step_, session_->changes()};
}

bool Trainer::load(const std::filesystem::path& folder) {
  const std::optional<std::int64_t> newest = find_checkpoint(folder);
  if (newest) load_step(folder, *newest);
  went_back_ = went_back_ || newest.has_value();
  return newest.has_value();
}

void Trainer::resume(std::optional<std::int64_t> step) {
  if (step) {
    load_step(folder_, *step);
    note(LogLevel::info, fmt::format("resuming {} at step {}{}", folder_.string(), step_,
                                     changes_since(checkpoint_folder(folder_, step_), config_, registry_.models)));
  } else {
    note(LogLevel::info, fmt::format("no checkpoint in {}: starting fresh", folder_.string()));
    set_first_weights();
  }
}

// Against what run.json says of the data that the run has read so far.
void Trainer::report_changed_data() {
  std::ifstream file(folder_ / "run.json");
  const auto before = parse_json(file);
  if (!before.is_object() || !before.contains("data")) return;
  const nlohmann::json& data = before["data"];
  const std::string digest = digest_of(data_);
  if (!data.is_object() || !data.contains("digest") || data["digest"] == digest) return;
  const bool counted = data.contains("samples") && data["samples"].is_number_integer();
  note(LogLevel::warning,
       fmt::format("the data have changed since {} began: {} samples then, {} now, or other contents; "
                   "the rest of the run reads the new data",
                   folder_.string(), counted ? data["samples"].get<std::int64_t>() : 0, data_.train->samples()));
}

void Trainer::use_recorded_algorithms() {
  std::string text;
  if (leads() && options_.write && options_.mode != RunMode::fresh) text = algorithms_of_run(folder_);
  if (leads() && text.empty() && options_.plan)
    text = text_in(std::filesystem::path(options_.plan->file).parent_path() / kAlgorithmsFile);
  const std::vector<device::ChosenAlgorithm> recorded = device::parse_algorithms(broadcast(text));
  recorded_ = recorded.size();
  algorithms_.use_recorded(recorded);
}

void Trainer::record_algorithms() {
  // Stages have products of their own.
  std::vector<device::ChosenAlgorithm> all = algorithms_.used();
  if (options_.world != nullptr) {
    const std::string own = device::algorithms_text(all);
    auto any = static_cast<std::int32_t>(all.empty() ? 0 : 1);
    options_.world->all_reduce(std::span(&any, 1), comm::Reduce::max);
    if (any == 0) return;
    all.clear();
    for (int rank = 0; rank < options_.world->size(); ++rank)
      for (device::ChosenAlgorithm& c : device::parse_algorithms(broadcast_from(rank, own, *options_.world)))
        if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(std::move(c));
  }
  const std::string text = device::algorithms_text(all);
  if (text == std::exchange(algorithms_text_, text) || !leads()) return;
  if (options_.write) write_file_atomically((folder_ / kAlgorithmsFile).string(), text);
  const device::Algorithms::Measured measured = algorithms_.measured();
  if (measured.choices == 0) return;
  note(LogLevel::info, fmt::format("measured the algorithms of {} products and convolutions in {:.1f} s{}; the fastest "
                                   "are kept for later runs{}",
                                   measured.choices, measured.seconds,
                                   recorded_ == 0 ? ""
                                                  : fmt::format(", which are not among the {} that were recorded, or "
                                                                "those cannot be used here",
                                                                recorded_),
                                   options_.write ? fmt::format(" and recorded in {}", kAlgorithmsFile) : ""));
}

void Trainer::checkpoint(Outcome& outcome, bool last) {
  if (!writer_) return;
  const auto begin = std::chrono::steady_clock::now();
  writer_->wait();  // for the one before, which may be what makes room
  report(writer_->take());
  if (is_saved()) return;
  std::vector<std::int64_t> gone;
  if (leads()) gone = make_room(folder_, step_, broken_);
  broadcast(std::int64_t{0});  // nobody writes before there is room
  if (!gone.empty())
    note(LogLevel::warning,
         fmt::format("the disk of {} is full: the checkpoint{} of step{} {} made room for that of step {}",
                     (folder_ / "checkpoints").string(), gone.size() == 1 ? "" : "s", gone.size() == 1 ? "" : "s",
                     fmt::join(gone, ", "), step_));
  record_algorithms();
  io::CheckpointManifest manifest = describe_checkpoint(config_, step_);
  manifest.algorithms = algorithms_text_;
  writer_->start(std::move(manifest));
  if (last) writer_->wait();
  outcome.checkpoint_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::vector<Written> finished = writer_->take();
  if (last && finished.back().error) fail("{}", *finished.back().error);
  report(finished);
}

bool Trainer::is_saved() const {
  const bool saved = last_saved_ && last_saved_->step == step_ && last_saved_->changes == session_->changes() &&
                     leads() && has_checkpoint(folder_, step_);
  return broadcast(static_cast<std::int64_t>(saved)) != 0;
}

void Trainer::report(const std::vector<Written>& checkpoints) {
  for (const Written& c : checkpoints) {
    if (c.error) {
      note(LogLevel::warning,
           fmt::format(
               "{}; training goes on, and the next one is tried when it is due; {}", *c.error,
               last_saved_ ? fmt::format("the last good one is of step {}", last_saved_->step) : "there is none yet"));
      continue;
    }
    last_saved_ = Saved{c.step, c.changes};
    write_log(
        fmt::format("checkpoint of step {}: {} in {}", c.step, format_bytes(c.bytes), format_duration(c.seconds)));
  }
}

// What a person has in the folder stays; a folder that is named as a run's is one.
void Trainer::check_keeps_others() const {
  if (options_.mode == RunMode::resume && !config_.run.empty()) return;
  check_replaces_runs_only(folder_, fmt::format("output.dir = \"{}\"", folder_.string()), !config_.init.from.empty());
}

void Trainer::save(const std::filesystem::path& folder) {
  if (writer_) {
    writer_->wait();  // staging is one checkpoint's at a time
    report(writer_->take());
  }
  const bool own =
      options_.write && std::filesystem::weakly_canonical(folder) == std::filesystem::weakly_canonical(folder_);
  if (own) {
    hold_folder();
    leave_later_steps();
    if (is_saved()) return;
    save_checkpoint(folder, *session_, config_, step_, config_.output.keep);
    last_saved_ = Saved{step_, session_->changes()};
    return;
  }
  check_replaces_runs_only(folder, folder.string(), false);
  check_inputs_stay(folder, config_);
  check_takes_run(folder, folder.string());
  const bool replaces = holds_run(folder);
  const RunLock lock = lock_run_folder(folder, config_, run_json());
  // What is there goes when what replaces it is whole.
  if (!replaces) write_run_files(folder, config_, RunMode::overwrite, run_json());
  save_checkpoint(folder, *session_, config_, step_, std::numeric_limits<std::int64_t>::max());
  if (replaces) replace_run_files(folder, config_, run_json(), step_);
}

void Trainer::hold_folder() {
  if (options_.write && leads() && !lock_.holds()) lock_ = lock_run_folder(folder_, config_, run_json());
}

// A trainer that has loaded an earlier step goes on from there: checkpoints of later ones, which would be taken for
// newer, are of a state that it has left. They go when the one that it goes on from is there.
void Trainer::leave_later_steps() {
  if (!std::exchange(went_back_, false) || !writer_) return;
  std::vector<std::int64_t> later;
  if (leads()) later = checkpoint_steps(folder_);
  std::erase_if(later, [&](std::int64_t step) { return step <= step_; });
  if (broadcast(std::ssize(later)) == 0) return;
  Outcome ignored;
  checkpoint(ignored, true);
  if (!leads()) return;
  for (const std::int64_t step : later) remove_checkpoint(checkpoint_folder(folder_, step));
  metrics_ = std::make_unique<MetricsFile>(folder_ / "metrics.jsonl", step_);
  note(LogLevel::warning,
       fmt::format("going on from step {}: the checkpoint{} of step{} {}, of the state that was left, "
                   "{} removed",
                   step_, later.size() == 1 ? "" : "s", later.size() == 1 ? "" : "s", fmt::join(later, ", "),
                   later.size() == 1 ? "is" : "are"));
}

std::string Trainer::run_json() const {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  nlohmann::ordered_json o;
  o["command"] = options_.command;
  o["build"] = {{"version", version()}, {"compiler", __VERSION__}};
  o["hosts"] = {host.data()};
  o["parameters"] = compiled_.parameters();
  o["data"] = {{"samples", data_.train->samples()}, {"digest", digest_of(data_)}};
  o["plan"] = {{"ranks", compiled_.mesh.ranks()},
               {"mesh", compiled_.mesh.str()},
               {"zero", config_.parallel.zero},
               {"threads", threads_},
               {"micro_batches", compiled_.micro_batches},
               {"micro_batch", compiled_.micro_rows / compiled_.replicas},
               {"precision", config_.train.precision.text()},
               {"predicted_peak_bytes", compiled_.arena_bytes()},
               {"flops_per_step", flops_per_step()},
               {"model_flops_per_step", model_flops_per_step()}};
  // A command line may hold any bytes.
  return o.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::train
