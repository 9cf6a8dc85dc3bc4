#pragma once
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/core/log.h"
#include "trireme/data/loader.h"
#include "trireme/device/algorithm_cache.h"
#include "trireme/train/checkpoint_writer.h"
#include "trireme/train/compile.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/metrics.h"
#include "trireme/train/outside.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/session.h"
#include "trireme/train/utilisation.h"

namespace trireme::train {

// What a run should do between two steps, asked by the loop. Set from a signal handler or a callback.
enum class Request { none, checkpoint, stop };

struct TrainerOptions {
  RunMode mode = RunMode::fresh;
  bool write = true;          // false: no run folder, no files
  bool dry_run = false;       // what the run lacks (shortfalls) is reported instead of refused
  bool within_limit = false;  // of a dry run too, a memory.limit that is too small is refused
  // Ranks that are processes of their own, of which this is one; null: threads of this process. Must outlive the
  // trainer. All of them train; the first writes the run folder and logs.
  comm::Communicator* world = nullptr;
  int local_ranks = 0;  // of them on this machine; 0: all
  std::filesystem::path dump_passes = {};
  std::vector<std::string> disabled_passes = {};
  std::optional<Decisions> plan = {};  // read from a file; nothing: the planner decides
  std::string command = {};            // for run.json
  LogSink log = {};
  std::optional<data::Data> data = {};                  // in the place of what the configuration names
  std::function<Request(const Metrics&)> request = {};  // polled after every step
  std::function<void(const Metrics&)> on_step = {};     // after every logged step; an exception ends the run
  std::function<void(std::int64_t done, std::int64_t total)> on_evaluation = {};
  std::function<void(const char* phase)> on_phase = {};  // what construction is at: "reading data", "compiling"
};

struct Outcome {
  std::int64_t steps = 0;                 // done in all
  std::int64_t skipped = 0;               // of those done here: the ones whose gradients overflowed fp16
  std::optional<double> loss_scale = {};  // of the last step
  bool stopped = false;                   // by a request or by max_time
  std::vector<double> losses;
  std::optional<Evaluation> evaluation;
  double seconds = 0;                     // of training, without evaluation and checkpoints
  std::array<double, 4> phase_seconds{};  // in the order of ir::Phase
  double exposed_comm_seconds = 0;        // that the first rank spent waiting for others
  double idle_seconds = 0;                // and, of a pipeline, for other stages
  double data_seconds = 0;
  double checkpoint_seconds = 0;  // that the loop spent waiting for them
};

// A training run. Construction opens the data, builds, checks and plans: whatever can be refused is refused there,
// before a byte is allocated or a file written.
//
//   Trainer t(config, registry, options);
//   t.start();                    // memory, run folder, start values or the resumed checkpoint
//   Outcome outcome = t.run();
class Trainer {
 public:
  // `registry` must outlive the trainer.
  Trainer(Config config, const Registry& registry, TrainerOptions options);

  const Config& config() const { return config_; }
  const models::Model& model() const { return registry_.models.at(config_.model.family); }
  const Compiled& compiled() const { return compiled_; }
  // Whether ranks are in steps of their own: what is asked meanwhile may look and request, and touch no state.
  bool at_own_pace() const { return at_own_pace_; }
  const Planned& planned() const { return planned_; }
  // Why the run cannot take place here (room.h); empty after a construction that is no dry run.
  const std::vector<std::string>& shortfalls() const { return shortfalls_; }
  // What the ranks of this process take of the host's memory beyond the plan.
  const std::vector<Outside>& outside() const { return outside_; }
  // Whether each rank is a process of its own, or would be: in a dry run for MPI, which looks at the process that takes
  // most.
  bool has_processes() const {
    return options_.world != nullptr ||
           (options_.dry_run && compiled_.ranks() > 1 && compiled_.plan.transport == comm::TransportKind::mpi);
  }
  // The ranks that are threads of this process.
  // In a dry run more processes may have been launched than there are ranks.
  int first_rank() const {
    return options_.world == nullptr ? shown_rank_ : std::min(options_.world->rank(), compiled_.ranks() - 1);
  }
  int ranks_here() const { return has_processes() ? 1 : compiled_.ranks(); }
  const data::Data& data() const { return data_; }
  Session& session() { return *session_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::int64_t first_step() const { return step_; }
  // Whether the run that was resumed has done its steps: then starting writes nothing to its folder but the log.
  bool has_nothing_to_do() const {
    return options_.mode == RunMode::resume && step_ > 0 && step_ >= config_.train.steps;
  }
  int threads() const { return threads_; }
  // Whether this process writes and speaks for all.
  bool leads() const { return options_.world == nullptr || options_.world->rank() == 0; }
  const char* transport() const { return has_processes() ? "mpi" : "threads"; }
  // Floating-point operations of one update, by the ops' own costs: all, and without what is recomputed.
  double flops_per_step() const { return operations_.all; }
  double model_flops_per_step() const { return operations_.model; }

  // The batches of the run from step `from` on, read ahead: the rows that this process takes, or some of them.
  data::Loader batches(std::int64_t from = 0) const;
  data::Loader batches(std::int64_t from, std::vector<data::RowRange> rows) const;

  void start();
  Outcome run();
  // Over held-out rows (as train::evaluate); nothing when nothing is held out.
  std::optional<Evaluation> evaluate(std::int64_t batches);
  // A run folder with this state alone; a checkpoint where it is this run's own.
  void save(const std::filesystem::path& folder);
  // Continues from the newest checkpoint of a run folder; false when it has none.
  bool load(const std::filesystem::path& folder);

 private:
  // The newest checkpoint that a folder has, for all processes; in the run's own it also notes which are damaged.
  std::optional<std::int64_t> find_checkpoint(const std::filesystem::path& folder);
  void load_step(const std::filesystem::path& folder, std::int64_t step);
  // Sets parallel.compress_warmup to the steps that it stands for, which stay with the run however long it becomes.
  void settle_warmup(bool resumes);
  void resume(std::optional<std::int64_t> step);
  // From the first process to all of them.
  std::string broadcast(std::string text) const;
  std::int64_t broadcast(std::int64_t number) const;
  // Of what the processes were asked for.
  Request most_urgent(Request own) const;
  void open_weights();
  void set_first_weights();
  void load_start(bool resumes, std::optional<std::int64_t> newest);
  Outcome run_to_end();
  // In a run, which a bad value of the held-out data does not end: it is warned of once.
  std::optional<Evaluation> evaluate_in_run();
  std::optional<Evaluation> evaluate_or_save(Outcome& outcome);
  std::string save_at_failure(Outcome& outcome, std::string_view what);
  Metrics take_step(data::Loader& loader, Outcome& outcome);
  // Returns where every process has what it reads in so many steps; otherwise saves, and fails in all of them.
  void require_data(std::span<data::Loader* const> loaders, std::size_t steps, Outcome& outcome);
  // Steps until all ranks are to have the same weights again: where the plan lets them go at their own pace.
  Metrics take_asynchronous_steps(Outcome& outcome);
  std::int64_t asynchronous_steps() const;
  bool out_of_time() const;
  // By the clock, where checkpoints are due by it.
  bool checkpoint_is_late() const;
  Metrics measured(const StepResult& result, std::int64_t step, double seconds, Outcome& outcome);
  // mfu of a step at so many operations per second.
  double share_of_peak(double speed, std::int64_t step);
  data::Sampler sampler() const;
  std::string text_of(const BadInput& bad, std::int64_t step) const;
  // "input 'x', …; " where this process's rows of a step have a value that is not finite.
  std::string input_to_blame(std::int64_t step) const;
  // Whether a skipped step is not finite for a value of its batch, which no other scale would mend. Collective.
  bool batch_to_blame(const data::Batch& batch, const StepResult& result);
  [[noreturn]] void stop_at_bad_step(const data::Batch& batch, const StepResult& result, double lr);
  comm::TransportKind planned_transport() const;
  void compile_plan();
  void check_between_gpus() const;
  std::string nccl_shortfall() const;  // "": NCCL can be used here
  void check_keeps_others() const;
  void log_metrics(const Metrics& metrics);
  // Begins a checkpoint of the state as it is; `last`: and waits for it, and fails if it does.
  void checkpoint(Outcome& outcome, bool last);
  void report(const std::vector<Written>& checkpoints);
  // Whether the run's folder has the state as it is now. Collective.
  bool is_saved() const;
  // The run's own folder is this process's while it writes there.
  void hold_folder();
  void leave_later_steps();
  std::string run_json() const;
  void report_changed_data();
  // Before anything is prepared: the algorithms that were recorded with the run, or with the plan that it follows, are
  // used again.
  void use_recorded_algorithms();
  // Those in use, of all processes, in algorithms.txt and for the next checkpoint; says which were measured.
  void record_algorithms();
  // To the caller's sink and to log.txt of the run folder.
  void note(LogLevel level, const std::string& text);
  void write_log(const std::string& text);

  Config config_;
  const Registry& registry_;
  TrainerOptions options_;
  int threads_ = 1;
  data::Data data_;
  // The same, as steps and evaluations read them: what no op can read is named with its sample.
  std::shared_ptr<const data::Dataset> read_train_, read_eval_;
  Planned planned_;
  Compiled compiled_;
  int shown_rank_ = 0;  // of a dry run
  std::vector<Outside> outside_;
  std::vector<std::string> shortfalls_;
  Operations operations_;
  Utilisation utilisation_;
  std::filesystem::path folder_;
  std::unique_ptr<io::HfWeights> weights_;  // of init.from, until they are in the session
  bool starts_from_folder_ = false;         // they are
  RunLock lock_;
  device::Algorithms algorithms_;
  std::unique_ptr<Session> session_;
  std::vector<std::int64_t> broken_;          // steps whose checkpoints were found damaged
  std::unique_ptr<CheckpointWriter> writer_;  // after the session, which it reads
  struct Saved {
    std::int64_t step = 0;
    std::uint64_t changes = 0;  // of the session then
  };
  bool went_back_ = false;           // another state was loaded than that which the run's folder ends with
  std::optional<Saved> last_saved_;  // in the run's own folder
  std::size_t recorded_ = 0;         // algorithms that were found recorded
  std::string algorithms_text_;      // those in use
  std::unique_ptr<MetricsFile> metrics_;
  std::ofstream log_file_;
  std::vector<std::string> early_log_;  // what was noted before the run folder had a log.txt
  std::unique_ptr<runtime::Trace> trace_;
  std::int64_t step_ = 0;
  std::vector<std::unique_ptr<data::Loader>> loaders_;  // for ranks that go at their own pace, one each
  double step_seconds_ = 0;                             // of the last such step
  Request requested_ = Request::none;                   // while they did
  bool at_own_pace_ = false;                            // they do
  bool warned_of_held_out_ = false;
  std::chrono::steady_clock::time_point last_checkpoint_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace trireme::train
