#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trireme/cli/commands.h"
#include "trireme/cli/progress.h"
#include "trireme/cli/report.h"
#include "trireme/cli/signals.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/planner/machine.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/sample_text.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

struct TrainArguments {
  std::string config = "quickstart";
  bool resume = false;
  bool overwrite = false;
  bool dry_run = false;
  std::int64_t replay = -1;
  std::string plan;
  std::string dump_passes;
  std::vector<std::string> disabled;
};

bool speaks(const train::Trainer& t) { return t.data().tokenizer != nullptr; }

std::string says(train::Trainer& t, const std::string& prompt, std::int64_t tokens) {
  const data::Tokenizer& tokenizer = *t.data().tokenizer;
  try {
    return tokenizer.decode(train::sample_tokens(t.session(), tokenizer.encode(prompt),
                                                 {.tokens = tokens, .sampling = {.temperature = 0.7}, .seed = 7}),
                            data::Specials::none);
  } catch (const Error& e) {
    return fmt::format("… nothing: {}", e.message());  // what was trained is saved and stays what it is
  }
}

// What fits into this machine's memory with 16 bytes for each parameter: f32 weights, gradients and Adam's two states.
std::string capacity_text() {
  const double parameters = 0.8 * static_cast<double>(planner::total_memory()) / 16;
  return fmt::format("this machine could train about {:.1f} B parameters in memory (f32, AdamW: 16 bytes each)\n",
                     parameters / 1e9);
}

// Several ranks must train like one: the first steps again, on one rank, and by how much the losses differ.
std::string replayed(Context& context, train::Config config, const train::Outcome& outcome, std::int64_t steps) {
  config.parallel = {};
  config.runtime.threads = 0;
  config.runtime.link = "";
  config.train.micro_batch = 0;
  train::TrainerOptions options;
  options.write = false;
  train::Trainer one(std::move(config), *context.registry, options);
  one.start();
  const train::Config& c = one.config();
  data::Loader loader = one.batches();
  double most = 0;
  steps = std::min<std::int64_t>(steps, std::ssize(outcome.losses));
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto result = one.session().step(loader.next(), i, train::learning_rate(c.train, i), c.train.seed);
    most = std::max(most, std::abs(static_cast<double>(result.loss) - outcome.losses[static_cast<std::size_t>(i)]));
  }
  constexpr double kClose = 1e-4;
  return fmt::format("equal   first {} steps replayed on one rank: losses differ by at most {:.0e} {}\n", steps, most,
                     most <= kClose ? "✓" : "✗");
}

int train_once(Context& context, const TrainArguments& a, const std::optional<train::Decisions>& plan,
               train::Config config, comm::Communicator* world) {
  train::TrainerOptions options;
  options.world = world;
  if (world != nullptr) options.local_ranks = comm::mpi::launched().value_or(comm::mpi::Launched{}).here;
  options.mode = a.resume ? train::RunMode::resume : a.overwrite ? train::RunMode::overwrite : train::RunMode::fresh;
  options.write = !a.dry_run;
  options.dump_passes = a.dump_passes;
  options.disabled_passes = a.disabled;
  options.plan = plan;
  options.command = context.command_line;
  options.log = [](LogLevel level, const std::string& text) {
    fmt::print(stderr, "{}{}\n", level == LogLevel::warning ? "warning: " : "", text);
  };
  if (world != nullptr && world->rank() > 0) options.log = {};
  Signals signals;
  options.request = [&signals](const train::Metrics&) { return signals.take(); };
  std::unique_ptr<Progress> progress;
  options.on_step = [&progress](const train::Metrics& m) {
    if (progress) progress->step(m);
  };
  options.on_evaluation = [&progress](std::int64_t done, std::int64_t total) {
    if (progress) progress->evaluation(done, total);
  };
  fmt::print("{}", headline(config));
  std::fflush(stdout);
  train::Trainer trainer(std::move(config), *context.registry, options);
  fmt::print("{}", plan_text(trainer));
  if (a.dry_run) {
    fmt::print("dry run: compiled, checked and planned; nothing was trained\n");
    return 0;
  }
  trainer.start();
  const std::string prompt = "template<";
  if (speaks(trainer) && trainer.first_step() == 0)
    fmt::print("untrained says:  \"{}{}\"\n", prompt, one_line(says(trainer, prompt, 40), 60));
  std::fflush(stdout);
  if (trainer.leads()) progress = std::make_unique<Progress>(trainer.first_step(), trainer.config().train.steps);
  const train::Outcome outcome = trainer.run();
  if (progress) progress->finish();
  fmt::print("{}", summary_text(trainer, outcome));
  const bool several = trainer.compiled().mesh.ranks() > 1;
  // Compressed gradients are others, and so are those of ranks that do not wait for each other.
  const bool equal = trainer.config().name == "quickstart" && trainer.config().parallel.compress == "none" &&
                     trainer.compiled().synchronous();
  const std::int64_t replay = a.replay >= 0 ? a.replay : equal ? 20 : 0;
  if (several && world == nullptr && replay > 0 && outcome.steps == std::ssize(outcome.losses))
    fmt::print("{}", replayed(context, trainer.config(), outcome, replay));
  if (speaks(trainer) && !outcome.stopped)
    fmt::print("it now says:\n  │ {}\n", [&] {
      std::string text = prompt + printable(says(trainer, prompt, 220));
      for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 7) text.replace(at, 1, "\n  │ ");
      return text;
    }());
  fmt::print("{}", capacity_text());
  fmt::print("run     {}   (config, metrics, checkpoint{})\n", trainer.folder().string(),
             trainer.config().runtime.trace.empty() ? "" : ", trace for Perfetto: " + trainer.config().runtime.trace);
  if (outcome.stopped)
    fmt::print("stopped at step {} of {}; `trireme train {} --resume` continues\n", outcome.steps,
               trainer.config().train.steps, trainer.folder().string());
  if (speaks(trainer))
    fmt::print("next    ./trireme generate --from {} --prompt '{}'\n", trainer.folder().string(), prompt);
  return signals.exit_code();
}

// Under mpirun or srun every process is a rank, and the first speaks for all.
int train_everywhere(Context& context, const TrainArguments& a) {
  if (a.resume && a.overwrite) refuse("--resume and --overwrite contradict each other");
  std::optional<train::Decisions> plan;
  train::Config config;
  if (a.plan.empty()) {
    config = train::load_config(a.config, context.overrides, context.registry->models);
  } else {
    const train::PlanFile file = train::read_plan(a.plan);
    plan = file.decisions;
    config = train::load_config_under(file, a.config, context.overrides, context.registry->models);
  }
  const auto launched = comm::mpi::launched();
  const std::string& transport = config.runtime.transport;
  if (transport == "mpi" && !launched)
    refuse(
        "runtime.transport = \"mpi\": this process was not started by mpirun or srun; try: mpirun -n 4 trireme train "
        "…");
  if (transport == "threads" && launched && launched->size > 1)
    refuse("runtime.transport = \"threads\" under {}, which started {} processes: each would train alone",
           launched->launcher, launched->size);
  if (!launched || transport == "threads") return train_once(context, a, plan, std::move(config), nullptr);
  comm::mpi::Session session({.timeout = config.parallel.timeout.count});
  comm::Communicator world = session.communicator();
  if (world.rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) fail("/dev/null cannot be opened");
  try {
    return train_once(context, a, plan, std::move(config), &world);
  } catch (Error& e) {
    world.abort(e.message());
    throw e.within(fmt::format("rank {}", world.rank()));
  }
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->add_option("config", arguments->config,
                      "A TOML file, a run folder, or the name of a built-in configuration (see trireme config)");
  command->add_flag("--resume", arguments->resume, "Continue the newest checkpoint of the run folder");
  command->add_flag("--overwrite", arguments->overwrite, "Replace the run in the folder");
  command->add_option(
      "--replay", arguments->replay,
      "With several ranks: replay so many first steps on one rank and compare the losses (quickstart: 20)");
  command->add_option(
      "--plan", arguments->plan,
      "Follow a plan that was written before (plan.toml of a run folder, or trireme memory --plan-out)");
  command->add_flag("--dry-run", arguments->dry_run, "Compile, check and plan memory, then stop");
  command->add_option("--dump-passes", arguments->dump_passes,
                      "Write the graphs after every pass to this folder, as numbered files");
  command->add_option("--disable-pass", arguments->disabled, "Leave a pass out, by name");
  command->footer(
      "\nExamples:\n"
      "  trireme train                                                  the quickstart\n"
      "  trireme train --model.layers=6 --model.width=384 --train.steps=1000\n"
      "  trireme train my.toml --train.precision=bf16 --train.micro_batch=8\n"
      "  trireme train my.toml --dump-passes=/tmp/passes --dry-run      what every pass does to the graph\n"
      "  trireme train --resume                                         go on where the last run stopped\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return train_everywhere(context, *arguments); }; });
}

}  // namespace trireme::cli
