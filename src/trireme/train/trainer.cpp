#include "trireme/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/core/text.h"
#include "trireme/core/trace_format.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/nccl.h"
#include "trireme/planner/machine.h"
#include "trireme/train/compression.h"
#include "trireme/train/convert.h"
#include "trireme/train/distil.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/input_read.h"
#include "trireme/train/loader_depth.h"
#include "trireme/train/offload_warning.h"
#include "trireme/train/open_data.h"
#include "trireme/train/overwritten.h"
#include "trireme/train/pipeline_warnings.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/prune.h"
#include "trireme/train/room.h"
#include "trireme/train/same_run.h"
#include "trireme/train/schedule.h"
#include "trireme/train/sharding.h"
#include "trireme/train/statistics_warning.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

// While training, of train.batch rows each, spread evenly; `trireme eval` looks at all that is held out.
constexpr std::int64_t kEvaluatedBatches = 32;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What all processes of one run must have been given, beyond the keys.
std::vector<Fact> asked_for(const TrainerOptions& options) {
  const auto yes = [](bool on) { return on ? "given" : "not given"; };
  const auto& disabled = options.disabled_passes;
  std::vector<Fact> facts = {
      {"--dry-run", yes(options.dry_run)},
      {"--resume", yes(options.mode == RunMode::resume)},
      {"--overwrite", yes(options.mode == RunMode::overwrite)},
      {"--disable-pass", disabled.empty() ? "not given" : fmt::format("{}", fmt::join(disabled, ","))}};
  for (Fact& fact : facts_of(options.plan)) facts.push_back(std::move(fact));
  return facts;
}

}  // namespace

Trainer::Trainer(Config config, const Registry& registry, TrainerOptions options)
    : config_(std::move(config)), registry_(registry), options_(std::move(options)) {
  const int launched = options_.world == nullptr ? 1 : options_.world->size();
  if (options_.world != nullptr) check_same_settings(config_, asked_for(options_), *options_.world);
  std::string not_launched;
  config_.parallel.mesh = launched_mesh(config_, launched, options_.dry_run ? &not_launched : nullptr);
  check(config_, registry_.models);
  // Before all that takes long.
  if (options_.write) folder_ = broadcast(leads() ? choose_run_folder(config_, options_.mode).string() : std::string());
  if (options_.write && leads()) check_writable(folder_, fmt::format("output.dir = \"{}\"", folder_.string()));
  const bool resumes = options_.write && options_.mode == RunMode::resume;
  if (options_.write && leads()) check_keeps_others();
  if (options_.write && !resumes && leads()) check_inputs_stay(folder_, config_);
  if ((options_.write || options_.dry_run) && options_.mode != RunMode::resume) open_weights();
  if (resumes && leads()) check_has_weights(folder_, registry_.models);
  const int ranks = ranks_of(config_);
  for (const std::string& unused : keys_without_effect(config_, registry_.models, ranks, options_.world != nullptr))
    note(LogLevel::warning, unused);
  settle_warmup(resumes);
  threads_ = compute_threads(config_, options_.world == nullptr ? 0 : options_.local_ranks);
  if (options_.on_phase) options_.on_phase("reading data");
  // Warnings belong into the run's log too; how far the reading is does not.
  const LogSink log = [this](LogLevel level, const std::string& text) {
    if (level == LogLevel::warning)
      note(level, text);
    else if (options_.log)
      options_.log(level, text);
  };
  data_ = options_.data ? *options_.data : open_data(config_, registry_.models, {.log = log, .threads = threads_});
  if (options_.world != nullptr) check_same_data(data_, *options_.world);
  resolve_model(config_, data_.vocab, registry_.models);
  if (options_.on_phase) options_.on_phase("compiling");
  compile_plan();
  read_train_ = with_checked_indices(data_.train, index_ranges(compiled_, "micro"), "sample");
  read_eval_ = with_checked_indices(data_.eval, index_ranges(compiled_, "eval"), "held-out sample");
  for (const std::string& warning : pipeline_warnings(compiled_)) note(LogLevel::warning, warning);
  for (const std::string& warning : statistics_warnings(compiled_)) note(LogLevel::warning, warning);
  for (const std::string& warning :
       {offload_warning(config_, compiled_), compression_warning(config_, compiled_), documents_warning(config_, data_),
        options_.plan ? "" : preset_warning(config_, compiled_.mesh)})
    if (!warning.empty()) note(LogLevel::warning, warning);
  if (config_.runtime.overlap_wgrad.value_or(false) && compiled_.device() == device::Kind::cpu)
    note(LogLevel::warning,
         "runtime.overlap_wgrad = true gains no time on a CPU, whose cores one launch keeps busy; it is for a GPU");
  const bool by_nccl = config_.runtime.transport == Transport::nccl && (options_.write || options_.dry_run);
  if (by_nccl) check_between_gpus();
  const bool alone = !has_processes();
  shown_rank_ = options_.world == nullptr && !alone ? largest_process(config_, data_, compiled_, threads_) : 0;
  outside_ = train::outside(config_, data_, compiled_, first_rank(), ranks_here(), threads_);
  shortfalls_ = train::shortfalls(config_, registry_, compiled_,
                                  {.threads = threads_,
                                   .alone = alone,
                                   .local_ranks = options_.local_ranks,
                                   .rank = first_rank(),
                                   .outside = needed_bytes(outside_),
                                   .plan = options_.plan && options_.plan->required ? options_.plan->file : ""});
  if (options_.within_limit && exceeds_limit(config_, compiled_)) refuse("{}", shortfalls_.front());
  if (by_nccl && options_.dry_run)
    if (std::string lacking = nccl_shortfall(); !lacking.empty()) shortfalls_.push_back(std::move(lacking));
  if (!not_launched.empty()) shortfalls_.insert(shortfalls_.begin(), not_launched);
  // One that only some processes have is of their machines.
  if (!options_.dry_run && !shortfalls_.empty())
    refuse("{}{}", leads() ? "" : fmt::format("rank {}: ", first_rank()), shortfalls_.front());
  if (options_.world != nullptr) check_same_programs(compiled_, *options_.world);
  operations_ = operations_of_step(compiled_);
}

std::string Trainer::broadcast(std::string text) const {
  if (options_.world == nullptr) return text;
  text.resize(static_cast<std::size_t>(broadcast(std::ssize(text))));
  options_.world->broadcast(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

std::int64_t Trainer::broadcast(std::int64_t number) const {
  if (options_.world != nullptr) options_.world->broadcast(std::as_writable_bytes(std::span(&number, 1)), 0);
  return number;
}

// Whatever any process was asked for, all do; stopping comes before saving.
Request Trainer::most_urgent(Request own) const {
  auto most = static_cast<std::int32_t>(own);
  if (options_.world != nullptr) options_.world->all_reduce(std::span(&most, 1), comm::Reduce::max);
  return static_cast<Request>(most);
}

void Trainer::open_weights() {
  if (config_.init.from.empty() || weights_) return;
  const io::HfConfig theirs = io::read_hf_config(config_.init.from, config_.names);
  weights_ = std::make_unique<io::HfWeights>(config_.init.from, theirs.model);
  for (const std::string& text : theirs.notes) note(LogLevel::info, fmt::format("{}: {}", config_.init.from, text));
}

// From init.from or, having none, from the seed alone.
void Trainer::set_first_weights() {
  open_weights();
  if (!weights_) return;
  if (const std::size_t masked = load_huggingface(*weights_, *session_); masked > 0 && leads())
    note(LogLevel::info, fmt::format("{} weights come pruned: their zeros stay", masked));
  weights_.reset();
  starts_from_folder_ = true;
}

// Reads all that the run begins with; of a folder of another run nothing has changed yet.
void Trainer::load_start(bool resumes, std::optional<std::int64_t> newest) {
  session_->initialize(config_.train.seed);
  if (!config_.distil.teacher.empty()) load_teacher(config_, registry_, *session_);
  if (resumes)
    resume(newest);
  else
    set_first_weights();
  if (options_.world == nullptr) return;
  std::int32_t read = 1;  // by this process; one that could not read does not come here
  options_.world->all_reduce(std::span(&read, 1), comm::Reduce::max);
}

void Trainer::check_between_gpus() const {
  if (compiled_.device() != device::Kind::cuda)
    refuse(
        "runtime.transport = \"nccl\" is between GPUs; set runtime.device = \"cuda\", or runtime.transport = \"auto\"");
}

std::string Trainer::nccl_shortfall() const {
  if (!device::cuda::Nccl::available())
    return "runtime.transport = \"nccl\": NCCL is not installed here, or this build was made without it";
  const int here = options_.world == nullptr ? compiled_.ranks() : options_.local_ranks;
  if (const auto gpus = static_cast<int>(device::cuda::gpus().size()); here > gpus)
    return fmt::format(
        "runtime.transport = \"nccl\" needs a GPU for each rank: {} ranks are on this machine, and {} GPU{}; \"auto\" "
        "lets ranks share one",
        here, gpus, gpus == 1 ? "" : "s");
  return {};
}

void Trainer::start() {
  if (config_.runtime.transport == Transport::nccl) {
    check_between_gpus();
    if (const std::string lacking = nccl_shortfall(); !lacking.empty()) refuse("{}", lacking);
  }
  // Written at the end of the run, which would be late to find out.
  if (const std::string& traced = config_.runtime.trace; !traced.empty()) {
    const std::string given = fmt::format("runtime.trace = \"{}\"", traced);
    if (leads()) check_replaceable(traced, kTraceBeginning, "trace of trireme", given);
    check_file_writable(traced, given);
  }
  use_recorded_algorithms();
  // Before the run folder: a disk without room for what is offloaded is refused, and leaves nothing.
  session_ = std::make_unique<Session>(compiled_, SessionOptions{.world = options_.world,
                                                                 .threads = threads_,
                                                                 .disk = offload_folder(config_, folder_),
                                                                 .names = config_.names,
                                                                 .allreduce = algorithm_of(config_),
                                                                 .link = config_.runtime.link,
                                                                 .timeout = config_.parallel.timeout.count,
                                                                 .nccl = config_.runtime.transport == Transport::nccl,
                                                                 .algorithms = &algorithms_});
  const bool resumes = options_.write && options_.mode == RunMode::resume;
  if (!resumes) load_start(false, std::nullopt);
  if (options_.write && leads()) {
    if (resumes && holds_run(folder_)) check_resumable(folder_, config_, registry_.models);
    check_keeps_others();
    if (options_.mode == RunMode::fresh) check_is_free(folder_);  // it was when the run was prepared
    lock_ = lock_run_folder(folder_, config_, run_json());
    if (resumes) log_file_.open(folder_ / "log.txt", std::ios::app);
  }
  // Before a file of the run is written: where none of its checkpoints can be used, it stays as it is.
  std::optional<std::int64_t> newest;
  if (resumes) try {
      newest = find_checkpoint(folder_);
    } catch (Error& e) {
      throw e.within(
          fmt::format("{} cannot be resumed and stays as it is (--overwrite starts over)", folder_.string()));
    }
  if (resumes && leads()) report_changed_data();
  if (resumes) load_start(true, newest);
  if (options_.write && leads() && !has_nothing_to_do()) {
    write_run_files(folder_, config_, options_.mode, run_json());
    write_file_atomically((folder_ / "plan.toml").string(), plan_text(config_, planned_));
    if (starts_from_folder_) keep_tokenizer_files(config_.init.from, folder_);
    point_latest_to(folder_);
    if (!log_file_.is_open()) log_file_.open(folder_ / "log.txt", std::ios::app);
    for (const std::string& text : std::exchange(early_log_, {})) write_log(text);
  }
  if (options_.write && leads() && has_nothing_to_do()) remove_left_over(folder_);
  if (!has_nothing_to_do()) record_algorithms();
  if (step_ == 0 && leads() && (resumes || !config_.init.from.empty()))
    if (const std::string warning = filling_warning(config_, planned_.graphs, *session_); !warning.empty())
      note(LogLevel::warning, warning);
  if (options_.write && leads()) metrics_ = std::make_unique<MetricsFile>(folder_ / "metrics.jsonl", step_);
  if (options_.write) {
    writer_ = std::make_unique<CheckpointWriter>(folder_, *session_, config_.output.keep, broken_);
  }
  if (!config_.runtime.trace.empty()) {
    trace_ = std::make_unique<runtime::Trace>(kTraceSpans);
    session_->step_executor().set_trace(trace_.get());
  }
  utilisation_.measured(product_speed(config_, compiled_, threads_, options_.world, options_.local_ranks));
  started_ = Clock::now();
  write_log(fmt::format(
      "{}: {} parameters, {} threads, {} micro-batches of {} rows, predicted peak {} B, from step {} to {}; "
      "a large product runs at {:.2f} GFLOP/s",
      options_.command, compiled_.parameters(), threads_, compiled_.micro_batches,
      compiled_.micro_rows / compiled_.replicas, compiled_.arena_bytes(), step_, config_.train.steps,
      utilisation_.product() / 1e9));
}

void Trainer::note(LogLevel level, const std::string& text) {
  if (options_.log) options_.log(level, text);
  write_log(text);
}

void Trainer::write_log(const std::string& text) {
  if (!log_file_.is_open()) {
    if (options_.write && started_ == Clock::time_point{}) early_log_.push_back(text);
    return;
  }
  log_file_.clear();  // a line that did not fit on the disk is lost; later ones need not be
  log_file_ << fmt::format("[{:10.3f} s] {}\n", started_ == Clock::time_point{} ? 0.0 : seconds_since(started_), text)
            << std::flush;
}

Outcome Trainer::run() {
  try {
    hold_folder();
    leave_later_steps();
    Outcome outcome = run_to_end();
    lock_ = {};
    return outcome;
  } catch (const std::exception& e) {
    write_log(fmt::format("failed at step {}: {}", step_, e.what()));
    throw;
  }
}

// What the programs read images in; f32 without images.
static DType image_type(const Compiled& compiled) {
  const ir::Graph& micro = compiled.roles.front().module.graph("micro");
  const auto images = micro.find_input("images");
  return images ? micro.type(*images).dtype : DType::f32;
}

data::Sampler Trainer::sampler() const {
  return {read_train_, config_.data.order.kind(), static_cast<std::uint64_t>(config_.train.seed), config_.train.batch};
}

data::Loader Trainer::batches(std::int64_t from) const {
  return batches(from, session_->rows(compiled_.micro_batches));
}

data::Loader Trainer::batches(std::int64_t from, std::vector<data::RowRange> rows) const {
  return {sampler(), std::move(rows), from,
          data::LoaderOptions{.depth = loader_depth(compiled_),
                              // While a GPU computes, the host's cores are free.
                              .threads = compiled_.device() == device::Kind::cpu ? 1 : threads_,
                              .images = image_type(compiled_),
                              .memory = device::host_memory(compiled_.device())}};
}

bool Trainer::out_of_time() const {
  return config_.train.max_time.count > 0 && seconds_since(started_) >= config_.train.max_time.count;
}

bool Trainer::checkpoint_is_late() const {
  const double seconds = config_.output.checkpoint_every.seconds;
  return seconds > 0 && seconds_since(last_checkpoint_) >= seconds;
}

Outcome Trainer::run_to_end() {
  Outcome outcome;
  const bool asynchronous = !compiled_.synchronous();
  // Then each rank takes its own batches at its own pace.
  const std::unique_ptr<data::Loader> loader(asynchronous ? nullptr : new data::Loader(batches(step_)));
  last_checkpoint_ = Clock::now();
  const Interval& every = config_.output.checkpoint_every;
  while (step_ < config_.train.steps && !outcome.stopped) {
    Metrics m = asynchronous ? take_asynchronous_steps(outcome) : take_step(*loader, outcome);
    Request own = std::exchange(requested_, Request::none);
    if (options_.request) own = std::max(own, options_.request(m));
    const Request request = most_urgent(own);
    const bool late = broadcast(static_cast<std::int64_t>(out_of_time())) != 0;
    const bool finished = step_ >= config_.train.steps;
    outcome.stopped = !finished && (request == Request::stop || late);
    const bool last = finished || outcome.stopped;
    const bool evaluation_due = finished || (config_.train.eval_every > 0 && step_ % config_.train.eval_every == 0);
    // A run that was asked to stop saves and ends: there may be no time left for an evaluation.
    if (evaluation_due && request != Request::stop && !outcome.stopped)
      if (const auto evaluation = evaluate_or_save(outcome)) {
        outcome.evaluation = evaluation;
        m.eval_loss = evaluation->loss;
        m.eval_accuracy = evaluation->accuracy;
        m.eval_samples = evaluation->samples;
        m.held_out_samples = evaluation->available;
      }
    if (step_ % config_.output.log_every == 0 || last || m.eval_loss || m.skipped) {
      log_metrics(m);
      if (options_.on_step) options_.on_step(m);
    }
    const bool due = broadcast(static_cast<std::int64_t>((every.steps > 0 && step_ % every.steps == 0) ||
                                                         checkpoint_is_late())) != 0;
    if (writer_) report(writer_->take());
    if (last || due || request == Request::checkpoint) {
      checkpoint(outcome, last);
      last_checkpoint_ = Clock::now();
    }
  }
  if (outcome.losses.empty()) {  // there was nothing left to do
    outcome.evaluation = evaluate_in_run();
    checkpoint(outcome, true);
  }
  outcome.steps = step_;
  if (trace_ && leads()) trace_->write(config_.runtime.trace, "rank 0");
  write_log(fmt::format("{} at step {}; planned peak {} B, {}{}", outcome.stopped ? "stopped" : "done", step_,
                        compiled_.arena_bytes(), planner::whole_use(compiled_.device()),
                        outcome.evaluation
                            ? fmt::format(", held-out loss {:.4f} over {}", outcome.evaluation->loss,
                                          samples_text(outcome.evaluation->samples, outcome.evaluation->available))
                            : ""));
  return outcome;
}

Metrics Trainer::take_step(data::Loader& loader, Outcome& outcome) {
  const auto begin = Clock::now();
  const double waited = loader.waited();
  require_data(std::array{&loader}, 1, outcome);
  const data::Batch& batch = loader.next();
  const std::uint64_t sent = session_->sent_bytes();
  const double lr = learning_rate(config_, step_);
  if (const data::Batch* next = loader.following()) session_->expect(*next);
  const StepResult result = session_->step(batch, step_, lr, config_.train.seed);
  if (!result.finite && (!result.skipped() || batch_to_blame(batch, result))) stop_at_bad_step(batch, result, lr);
  ++step_;
  const double seconds = seconds_since(begin);
  outcome.seconds += seconds;
  outcome.data_seconds += loader.waited() - waited;
  Metrics m = measured(result, step_ - 1, seconds, outcome);
  m.data_wait_ms = (loader.waited() - waited) * 1e3;
  m.sent_bytes = session_->sent_bytes() - sent;
  return m;
}

// A step that is faster than the large product was: other programs had the cores then, and it is measured again.
double Trainer::share_of_peak(double speed, std::int64_t step) {
  const double before = utilisation_.peak();
  // Ranks at their own pace end steps in bunches: the time between two ends is no measure of a speed.
  if (!compiled_.synchronous()) return std::min(1.0, before > 0 ? speed / before : 0);
  const bool alone = options_.world == nullptr;  // else the others are in their next step
  if (speed > before && before > 0 && alone && !utilisation_.outrun())
    utilisation_.measured(product_speed(config_, compiled_, threads_));
  const bool known = utilisation_.outrun();
  const double share = utilisation_.of(speed);
  if (utilisation_.outrun() && !known && leads()) note(LogLevel::info, utilisation_.outrun_text(step, speed));
  return share;
}

Metrics Trainer::measured(const StepResult& result, std::int64_t step, double seconds, Outcome& outcome) {
  // The first steps of a run may have a program of their own.
  const auto program = std::find_if(compiled_.steps.rbegin(), compiled_.steps.rend(),
                                    [&](const compiler::StepProgram& p) { return p.from <= step; });
  const runtime::Executor& executor =
      program == compiled_.steps.rend() ? session_->step_executor() : session_->rank(0).step_executor(program->program);
  for (std::size_t p = 0; p < outcome.phase_seconds.size(); ++p)
    outcome.phase_seconds[p] += executor.phase_seconds()[p];
  outcome.exposed_comm_seconds += executor.exposed_comm_seconds();
  outcome.idle_seconds += executor.idle_seconds();
  const auto loss = without_nan_sign(static_cast<double>(result.loss));
  outcome.losses.push_back(loss);
  outcome.skipped += result.skipped() ? 1 : 0;
  Metrics m;
  m.skipped = result.skipped();
  m.loss_scale = outcome.loss_scale = result.loss_scale;
  m.loss = loss;
  m.grad_norm = without_nan_sign(static_cast<double>(result.grad_norm));
  m.step = step + 1;
  m.lr = learning_rate(config_, step);
  const auto per_step = static_cast<double>(config_.train.batch * data_.train->tokens_per_sample());
  m.tokens = m.step * static_cast<std::int64_t>(per_step);
  m.tokens_per_s = per_step / seconds;
  m.step_ms = seconds * 1e3;
  m.peak_bytes = compiled_.arena_bytes();
  m.wall_s = seconds_since(started_);
  m.mfu = share_of_peak(operations_.model / seconds, m.step);
  m.exposed_comm_ms = executor.exposed_comm_seconds() * 1e3;
  return m;
}

void Trainer::log_metrics(const Metrics& metrics) {
  if (!metrics_) return;
  try {
    metrics_->append(metrics);
  } catch (const Error&) {
    // A checkpoint that does not fit takes the last room of a disk and gives it back when it fails.
    if (!writer_->busy()) throw;
    writer_->wait();
    metrics_->append(metrics);
  }
}

std::optional<Evaluation> Trainer::evaluate_in_run() {
  std::optional<Evaluation> evaluation = evaluate(kEvaluatedBatches);
  if (evaluation && !evaluation->bad_input.empty() && !std::exchange(warned_of_held_out_, true) && leads())
    note(LogLevel::warning,
         fmt::format("the held-out loss is not finite: {}; training goes on", evaluation->bad_input));
  return evaluation;
}

std::optional<Evaluation> Trainer::evaluate(std::int64_t batches) {
  if (!data_.eval) return std::nullopt;
  return train::evaluate(*session_, *read_eval_, batches * config_.train.batch, options_.on_evaluation, step_);
}

}  // namespace trireme::train
