#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include "trireme/cli/bench.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/checkpoint_writer.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

struct CheckpointArguments {
  std::string config = "quickstart";
  std::string dir = ".";
  int rounds = 10;
  int warmup = 2;
  bool json = false;
};

// A folder on the disk to be measured, gone afterwards.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent)
      : path_(parent / fmt::format("bench-checkpoint-{}", ::getpid())) {
    std::error_code error;
    if (!std::filesystem::create_directory(path_, error)) refuse("--dir {}: {}", parent.string(), error.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Figures {
  std::vector<double> plain;             // ms of steps while nothing is written
  std::vector<double> copied;            // of the step during which a checkpoint is copied
  std::vector<double> trailing;          // of later ones, if the disk is not done by then
  std::vector<double> ratios;            // of a `copied` step to the plain ones before and after it
  std::vector<double> seconds;           // from the start of a checkpoint until it is on the disk
  std::vector<double> writer_processor;  // ms of processor time of a checkpoint, and of a plain step
  std::vector<double> step_processor;
  std::uint64_t bytes = 0;
};

class Bench {
 public:
  Bench(train::Trainer& trainer, const std::filesystem::path& folder)
      : trainer_(trainer), writer_(folder, trainer.session(), 1, {}), loader_(trainer.batches()) {}

  Figures run(int rounds, int warmup) {
    for (int i = 0; i < warmup; ++i) step();
    // The first checkpoint touches the staging for the first time; that is not timed.
    writer_.start(train::describe_checkpoint(trainer_.config(), steps_));
    finish();
    figures_ = {};
    figures_.plain.push_back(step());
    for (int i = 0; i < rounds; ++i) {
      figures_.copied.push_back(step([&] { writer_.start(train::describe_checkpoint(trainer_.config(), steps_)); }));
      while (writer_.busy()) figures_.trailing.push_back(step());
      finish();
      const double before = processor_ms();
      figures_.plain.push_back(step());
      figures_.step_processor.push_back(processor_ms() - before);
      const double around = 0.5 * (*(figures_.plain.end() - 2) + figures_.plain.back());
      figures_.ratios.push_back(figures_.copied.back() / around);
    }
    return figures_;
  }

 private:
  static double processor_ms() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return 1e3 * static_cast<double>(used.tv_sec) + 1e-6 * static_cast<double>(used.tv_nsec);
  }

  double step(const std::function<void()>& first = {}) {
    const data::Batch& batch = loader_.next();
    const train::TrainConfig& c = trainer_.config().train;
    const auto begin = std::chrono::steady_clock::now();
    if (first) first();
    const auto result = trainer_.session().step(batch, steps_, train::learning_rate(c, steps_), c.seed);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (!result.finite && !result.skipped()) fail("step {} of the benchmark is not finite", steps_ + 1);
    ++steps_;
    return ms;
  }

  void finish() {
    writer_.wait();
    for (const train::Written& written : writer_.take()) {
      if (written.error) fail("{}", *written.error);
      figures_.bytes = written.bytes;
      figures_.seconds.push_back(written.seconds);
      figures_.writer_processor.push_back(1e3 * written.processor_seconds);
    }
  }

  train::Trainer& trainer_;
  train::CheckpointWriter writer_;
  data::Loader loader_;
  std::int64_t steps_ = 0;
  Figures figures_;
};

int bench_checkpoint(Context& context, const CheckpointArguments& a) {
  train::TrainerOptions options;
  options.write = false;
  train::Trainer trainer(train::load_config(a.config, context.overrides, context.registry->models), *context.registry,
                         options);
  trainer.start();
  const TemporaryFolder folder(a.dir);
  const Figures f = Bench(trainer, folder.path()).run(a.rounds, a.warmup);
  const double ratio = median(f.ratios);
  const double seconds = median(f.seconds);
  const double rate = static_cast<double>(f.bytes) / seconds / 1e9;
  const std::size_t staging = trainer.compiled().roles.front().layout.staging_bytes;
  if (a.json) {
    nlohmann::ordered_json o = {{"step_ms", median(f.plain)},
                                {"overlapped_step_ms", median(f.copied)},
                                {"ratio", ratio},
                                {"checkpoint_bytes", f.bytes},
                                {"write_s", seconds},
                                {"gb_s", rate},
                                {"staging_bytes", staging},
                                {"rounds", a.rounds}};
    o["processor_ms"] = median(f.writer_processor);
    o["step_processor_ms"] = median(f.step_processor);
    if (!f.trailing.empty()) o["trailing_step_ms"] = median(f.trailing);
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("saved   {} ({} B) through {} of staging\n", format_bytes(f.bytes), format_count(f.bytes),
             format_bytes(staging));
  fmt::print("step    {:.1f} ms alone, {:.1f} ms overlapped with the writing of a checkpoint: medians of {} rounds\n",
             median(f.plain), median(f.copied), a.rounds);
  fmt::print("cost    {:+.1f}% of the step: median over rounds, each against the steps before and after it\n",
             100 * (ratio - 1));
  fmt::print("work    {:.1f} ms of processor time for a checkpoint, {:.1f}% of a step's {:.1f} ms\n",
             median(f.writer_processor), 100 * median(f.writer_processor) / median(f.step_processor),
             median(f.step_processor));
  if (!f.trailing.empty())
    fmt::print("        {} later steps were overlapped too: {:.1f} ms median\n", f.trailing.size(), median(f.trailing));
  fmt::print("disk    {} from start to synced, {:.2f} GB/s, in {}\n", format_duration(seconds), rate, a.dir);
  return 0;
}

}  // namespace

void add_bench_checkpoint(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<CheckpointArguments>();
  CLI::App* command =
      bench.add_subcommand("checkpoint", "What a checkpoint written in the background costs the step it overlaps");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command->add_option("--rounds", arguments->rounds, "Checkpoints to write")->check(CLI::Range(1, 1000000));
  command->add_option("--warmup", arguments->warmup, "Steps before")->check(CLI::Range(0, 1000000));
  command->add_option("--dir", arguments->dir, "A folder on the disk to write to; nothing stays there");
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme bench checkpoint --model.layers=6 --model.width=384 --model.heads=6 --model.context=256 "
      "--train.batch=16\n"
      "  trireme bench checkpoint my.toml --output.staging=16MiB --dir /mnt/slow\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return bench_checkpoint(context, *arguments); }; });
}

}  // namespace trireme::cli
