#include <algorithm>
#include <cctype>
#include <cstdio>
#include <span>

#include "trireme/cli/auto_plan.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/progress.h"
#include "trireme/cli/replay.h"
#include "trireme/cli/report.h"
#include "trireme/cli/roles_report.h"
#include "trireme/cli/shell_texts.h"
#include "trireme/cli/signals.h"
#include "trireme/cli/validators.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/planner/machine.h"
#include "trireme/train/culprit.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/same_run.h"
#include "trireme/train/sample_text.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

struct TrainArguments {
  std::string config;  // "": the quickstart or, to resume, the latest run
  bool resume = false;
  bool overwrite = false;
  bool dry_run = false;
  std::int64_t replay = -1;
  std::string plan;
  std::string dump_passes;
  std::vector<std::string> disabled;
};

// What is to be trained, and the decisions of a plan that was read.
struct Request {
  train::Config config;
  std::optional<train::Decisions> plan;
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

// What a model is asked to go on from: the way a C++ header goes or, trained on other text, the first words held out.
std::string prompt_of(const train::Trainer& t) {
  std::string headers = "template<";
  const data::DataConfig& named = t.config().data;
  if (!speaks(t) || (named.tokens.empty() && named.text == std::vector<std::string>{kCxxHeaders})) return headers;
  const data::Dataset& samples = t.data().eval ? *t.data().eval : *t.data().train;
  data::Batch batch;
  samples.resize(batch, 1);
  samples.read(0, 0, batch);
  constexpr std::size_t kTokens = 24, kLetters = 24;
  const std::string text = t.data().tokenizer->decode(
      std::span(batch.tokens).first(std::min(kTokens, batch.tokens.size())), data::Specials::none);
  // Of the letters that a shell takes as they are, whole words.
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == ' ' || c == ','; };
  const auto begin = std::find_if(text.begin(), text.end(), [&](char c) { return plain(c) && c != ' ' && c != ','; });
  std::string words(begin, std::find_if_not(begin, text.end(), plain));
  if (words.size() > kLetters) words.resize(std::min(words.rfind(' ', kLetters), kLetters));
  return words.empty() ? headers : words;
}

// What fits into this machine's memory with 16 bytes for each parameter: f32 weights, gradients and Adam's two states.
std::string capacity_text() {
  const double parameters = 0.8 * static_cast<double>(planner::total_memory()) / 16;
  return fmt::format("this machine could train about {:.1f} B parameters in memory (f32, AdamW: 16 bytes each)\n",
                     parameters / 1e9);
}

// The command line without what makes it a dry run.
std::string launch_command(const Context& context) {
  std::string command = context.command_line;
  if (const std::size_t at = command.find(" --dry-run"); at != std::string::npos) command.erase(at, 10);
  return command;
}

int train_once(Context& context, const TrainArguments& a, Request request, comm::Communicator* world) {
  train::TrainerOptions options;
  options.world = world;
  if (world != nullptr) options.local_ranks = comm::mpi::launched().value_or(comm::mpi::Launched{}).here;
  options.mode = a.resume ? train::RunMode::resume : a.overwrite ? train::RunMode::overwrite : train::RunMode::fresh;
  options.write = !a.dry_run;
  options.dry_run = a.dry_run;
  options.dump_passes = a.dump_passes;
  options.disabled_passes = a.disabled;
  options.plan = std::move(request.plan);
  options.command = context.command_line;
  options.log = log_to_stderr;
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
  say(stdout, headline(request.config));
  flush_output();
  const bool speaker = world == nullptr || world->rank() == 0;
  std::optional<Preparation> preparation;
  if (speaker) preparation.emplace("preparing");
  options.on_phase = [&preparation](const char* phase) {
    if (preparation) preparation->begin(phase);
  };
  train::Trainer trainer(std::move(request.config), *context.registry, options);
  preparation.reset();
  const bool several = trainer.compiled().mesh.ranks() > 1;
  if (a.replay > 0 && !several)
    refuse("--replay {} compares several ranks with one, and parallel.mesh = \"{}\" has one; leave it out", a.replay,
           trainer.config().parallel.mesh);
  say(stdout, plan_text(trainer));
  if (a.dry_run) {
    say(stdout, launch_text(trainer.compiled(), launch_command(context)));
    for (const std::string& shortfall : trainer.shortfalls()) say(stdout, "would not run here: {}\n", shortfall);
    say(stdout, "dry run: compiled, checked and planned; nothing was trained{}\n",
        trainer.shortfalls().empty() ? "" : "; as it is, this would NOT RUN HERE (see above)");
    return 0;
  }
  if (speaker) preparation.emplace("starting");
  trainer.start();
  preparation.reset();
  if (trainer.has_nothing_to_do()) {
    say(stdout, "nothing to do: {} has done its {} steps; --train.steps=N goes on to step N\n",
        trainer.folder().string(), trainer.first_step());
    return 0;
  }
  const std::string prompt = prompt_of(trainer);
  if (speaks(trainer) && trainer.first_step() == 0)
    say(stdout, "{} says:  \"{}{}\"\n", trainer.config().init.from.empty() ? "untrained" : "as loaded, it", prompt,
        one_line(says(trainer, prompt, 40), 60));
  flush_output();
  if (trainer.leads())
    progress = std::make_unique<Progress>(trainer.first_step(), trainer.config().train.steps,
                                          trainer.model().images ? "images" : "tok");
  Signals::between_steps("the step is finished and a checkpoint written",
                         "what was trained since the last checkpoint is lost");
  const train::Outcome outcome = trainer.run();
  Signals::at_once("what was trained is saved");
  if (progress) progress->finish();
  say(stdout, summary_text(trainer, outcome));
  const bool quickstart = trainer.config().builtin && trainer.config().name == "quickstart";
  const bool equal = quickstart && !trainer.config().has_own_subject() && other_mathematics(trainer).empty();
  const std::int64_t steps = a.replay >= 0 ? a.replay : equal ? 20 : 0;
  const bool from_start = outcome.steps == std::ssize(outcome.losses);
  Verdict verdict;
  // A run that was stopped ends: a replay takes as long as the steps did.
  const bool stopped = outcome.stopped || signals.exit_code() != 0;
  if (several && world == nullptr && steps > 0 && from_start && !outcome.losses.empty() && !stopped) {
    verdict = replay(trainer, outcome, steps, *context.registry);
    say(stdout, "equal   {}\n", verdict.text);
  } else if (a.replay > 0)
    say(stdout, "equal   not replayed on one rank: {}\n",
        stopped                  ? "the run was stopped"
        : outcome.losses.empty() ? "there were no steps"
                                 : "the run was resumed, and its first steps were not done here");
  if (speaks(trainer) && !outcome.stopped)
    say(stdout, "it now says:\n  │ {}\n", [&] {
      std::string text = prompt + printable(says(trainer, prompt, 220));
      for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 7) text.replace(at, 1, "\n  │ ");
      return text;
    }());
  say(stdout, capacity_text());
  say(stdout, "run     {}   (config, metrics, checkpoint{})\n", trainer.folder().string(),
      trainer.config().runtime.trace.empty() ? "" : ", trace for Perfetto: " + trainer.config().runtime.trace);
  if (outcome.stopped)
    say(stdout, "stopped at step {} of {}; `trireme train {} --resume` continues\n", outcome.steps,
        trainer.config().train.steps, trainer.folder().string());
  if (speaks(trainer))
    say(stdout, "next    {} generate --from {} --prompt '{}'\n", context.program, trainer.folder().string(), prompt);
  if (verdict.kind == Verdict::Kind::unequal && signals.exit_code() == 0)
    fail("{} ranks did not train like one: {}; the run is saved in {}", trainer.compiled().mesh.ranks(), verdict.text,
         trainer.folder().string());
  return signals.exit_code();
}

// "; did you mean "runs/gpt2"?", where a folder next to the one that holds no run has one; otherwise nothing.
std::string nearest_run(const std::filesystem::path& folder) {
  const std::filesystem::path parent = folder.has_parent_path() ? folder.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator(parent, unknown))
    if (train::holds_run(entry.path())) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  const auto near = nearest(folder.filename().string(), names);
  if (!near) return {};
  return fmt::format("; did you mean \"{}\"?", (folder.parent_path() / *near).string());
}

// A run that was stopped before its folder was made is started by the same command: it says what it learns from, and
// nothing is there.
bool starts_there(const std::string& folder, const std::vector<std::string>& settings) {
  std::error_code unknown;
  return (!std::filesystem::exists(folder, unknown) || std::filesystem::is_empty(folder, unknown)) &&
         std::any_of(settings.begin(), settings.end(), [](const std::string& setting) {
           return setting.starts_with("data.") || setting.starts_with("model.") || setting.starts_with("init.");
         });
}

// The run that is resumed by its folder alone, as output.dir: it has a configuration of its own, so that the folder is
// taken out of `settings`.
std::optional<std::string> taken_folder(std::vector<std::string>& settings) {
  constexpr std::string_view kFolder = "output.dir=";
  const auto names_it = [&](const std::string& setting) { return setting.starts_with(kFolder); };
  const auto last = std::find_if(settings.rbegin(), settings.rend(), names_it);
  if (last == settings.rend()) return std::nullopt;
  std::string folder = last->substr(kFolder.size());
  if (!train::holds_run(folder) && starts_there(folder, settings)) return std::nullopt;
  if (!train::holds_run(folder))
    refuse(
        "--resume: output.dir = \"{}\" holds no run; name its configuration too, or leave --resume out to start one{}",
        folder, nearest_run(folder));
  std::erase_if(settings, names_it);
  return folder;
}

// What is trained when the command line names nothing.
std::string default_config(const TrainArguments& a, std::vector<std::string>& settings) {
  const std::filesystem::path latest = "runs/latest";
  std::error_code unknown;
  if (!a.resume) return "quickstart";
  const auto names_folder = [](const std::string& setting) { return setting.starts_with("output.dir="); };
  if (auto folder = taken_folder(settings)) return *folder;
  if (std::any_of(settings.begin(), settings.end(), names_folder)) return "quickstart";
  if (!std::filesystem::is_symlink(latest, unknown) && !train::holds_run(latest)) {
    if (!train::holds_run("runs/quickstart") && !starts_there("runs/quickstart", settings))
      refuse("--resume: there is no run in {}; name the run folder, or leave --resume out to train the quickstart",
             latest.parent_path().string());
    return "quickstart";
  }
  if (!std::filesystem::exists(latest, unknown))
    refuse("--resume: {} is a link to {}, which is not there; name the run folder", latest.string(),
           std::filesystem::read_symlink(latest, unknown).string());
  return latest.string();
}

// The plan of the run that is resumed, where it still applies.
std::optional<train::Decisions> kept_plan(const train::Config& config, const comm::mpi::Launched& launched) {
  const std::filesystem::path file = std::filesystem::path(config.run) / "plan.toml";
  if (config.run.empty() || !std::filesystem::exists(file)) return std::nullopt;
  train::PlanFile plan = [&] {
    try {
      return train::read_plan(file, train::PlanKeys::some);
    } catch (const Error& e) {
      if (e.kind() != Error::Kind::request) throw;
      // It may have been edited: what a person wrote is not replaced unasked.
      refuse("--resume: the run's plan cannot be read: {}; mend {}, or remove it: then the plan is made anew from {}",
             e.message(), file.string(), (file.parent_path() / "config.toml").string());
    }
  }();
  const int here = launched.size > 1 ? launched.here : 0;
  if (const std::string why = train::why_not_followed(plan, config, launched.size, here); !why.empty()) {
    if (launched.rank == 0) log_to_stderr(LogLevel::info, fmt::format("the plan is made anew: {}", why));
    return std::nullopt;
  }
  if (!plan.missing.empty() && launched.rank == 0)
    log_to_stderr(LogLevel::info,
                  fmt::format("{} does not name {}: {} as in the run's config.toml, and written to it", file.string(),
                              fmt::join(plan.missing, ", "), plan.missing.size() == 1 ? "taken" : "they are taken"));
  plan.decisions.required = false;
  return plan.decisions;
}

// A folder that was made for a run, which ended before anything was written to it.
void check_has_configuration(const TrainArguments& a, const std::string& source) {
  std::error_code unknown;
  if (!a.resume || !std::filesystem::is_directory(source, unknown) || !std::filesystem::is_empty(source, unknown))
    return;
  refuse(
      "--resume: {0} is empty: a run that was to be there ended before its configuration was written; start it as "
      "then, with --output.dir={0}",
      source);
}

Request request_of(const Context& context, const TrainArguments& a,
                   const std::optional<comm::mpi::Launched>& launched) {
  if (a.resume && a.overwrite) refuse("--resume and --overwrite contradict each other");
  std::vector<std::string> settings = context.overrides;
  const std::string source = a.config.empty() ? default_config(a, settings) : a.config;
  check_has_configuration(a, source);
  Request request;
  std::string plan = a.plan;
  if (plan.empty()) {
    request.config = train::load_config(source, settings, context.registry->models);
    const comm::mpi::Launched here = launched.value_or(comm::mpi::Launched{});
    if (a.resume) request.plan = kept_plan(request.config, here);
    if (request.config.parallel.plan == train::Planning::file) plan = request.config.parallel.plan.text();
  }
  if (!plan.empty()) {
    train::Followed followed = train::load_followed(plan, source, settings, context.registry->models);
    request.config = std::move(followed.config);
    request.plan = std::move(followed.plan);
  }
  const train::Config& config = request.config;
  // A run that is to go on somewhere else: there is nothing there to go on with.
  if (a.resume && train::holds_run(source) && config.run.empty() && !train::holds_run(config.output.dir))
    refuse("--resume: output.dir = \"{}\" holds no run; leave --resume out to start one there as {} was started",
           config.output.dir, source);
  if (a.replay > 0 && launched && launched->size > 1)
    refuse(
        "--replay compares with one rank in this process, and {} has started {} processes; leave it out, or train "
        "with ranks that are threads",
        launched->launcher, launched->size);
  const Choice<train::Transport>& transport = config.runtime.transport;
  if (transport == train::Transport::mpi && !launched && !a.dry_run) {
    // "auto" and "*" stand for as many as are launched.
    const bool any = config.parallel.any_mesh() || config.parallel.mesh.find('*') != std::string::npos;
    refuse("runtime.transport = \"mpi\": this process was not started by mpirun or srun; try: mpirun -n {} {}",
           any ? "RANKS" : std::to_string(train::ranks_of(config)), context.command_line);
  }
  if (transport == train::Transport::threads && launched && launched->size > 1)
    refuse("runtime.transport = \"threads\" under {}, which started {} processes: each would train alone",
           launched->launcher, launched->size);
  return request;
}

// parallel.plan = "auto": one process searches, whose calibration counts, and all train by what it has found.
void search_plan(const Context& context, const TrainArguments& a, train::Config& config, comm::Communicator* world) {
  if (config.parallel.plan != train::Planning::automatic) return;
  const auto search = [&](train::Config open) {
    return planned_here(context, std::move(open), world == nullptr ? 1 : world->size(), a.dry_run);
  };
  if (world == nullptr) {
    config = search(std::move(config));
    return;
  }
  train::check_same_settings(config, {}, *world);
  config = train::changed_by_first(config, search, *world, context.registry->models);
}

// Under mpirun or srun every process is a rank, and the first speaks for all; of errors, one that caused the rest.
int train_everywhere(Context& context, const TrainArguments& a) {
  const auto launched = comm::mpi::launched();
  const bool several = launched && launched->size > 1 && comm::mpi::available();
  const auto report_once = [](comm::mpi::Session& session, const Error& e, bool cause) {
    // The launcher takes the code of whichever process ends first, and ends the others: one of them reports before the
    // session ends, for which all wait.
    const auto verdict = session.settle_failure(cause, e.kind() == Error::Kind::request ? 2 : 1);
    return verdict.reports ? report(e) : verdict.exit_code;
  };
  Request request;
  try {
    request = request_of(context, a, launched);
  } catch (const Error& e) {
    if (!several) throw;
    comm::mpi::Session session;
    session.abort(e.message());
    return report_once(session, e, true);
  }
  if (!launched || request.config.runtime.transport == train::Transport::threads) {
    search_plan(context, a, request.config, nullptr);
    return train_once(context, a, std::move(request), nullptr);
  }
  comm::mpi::Session session({.timeout = request.config.parallel.timeout.count});
  comm::Communicator world = session.communicator();
  if (world.rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) fail("/dev/null cannot be opened");
  try {
    search_plan(context, a, request.config, &world);
    return train_once(context, a, std::move(request), &world);
  } catch (comm::Aborted& e) {
    return report_once(session, train::within_rank(e, world.rank()), false);
  } catch (Error& e) {
    world.abort(e.message());
    // What is wrong with a request is no rank's own, and what all meet together has named the rank where it began.
    if (e.kind() != Error::Kind::request && dynamic_cast<const train::SharedFailure*>(&e) == nullptr)
      train::within_rank(e, world.rank());
    return report_once(session, e, true);
  }
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command
      ->add_option("config", arguments->config,
                   "A TOML file, a run folder, or the name of a built-in configuration (see trireme config)")
      ->check(not_empty());
  command->add_flag("--resume", arguments->resume,
                    "Continue the newest checkpoint of the run folder; with no configuration, of --output.dir or else "
                    "of runs/latest");
  command->add_flag("--overwrite", arguments->overwrite, "Replace the run in the folder");
  command
      ->add_option("--replay", arguments->replay,
                   "With several ranks: replay this many first steps on one rank and compare the losses (quickstart: "
                   "20); exit code "
                   "1 where they are not equal")
      ->check(not_negative());
  command->add_option("--plan", arguments->plan,
                      "Follow a plan that was written before (plan.toml of a run folder, trireme plan --out, or "
                      "trireme memory --plan-out)");
  command->add_flag("--dry-run", arguments->dry_run,
                    "Compile, check and plan memory, then stop; exit code 0 also where the last line says that it "
                    "would not run here");
  command->add_option("--dump-passes", arguments->dump_passes,
                      "Write the graphs after every pass to this folder, as numbered files");
  command->add_option("--disable-pass", arguments->disabled, "Leave a pass out, by name");
  command->footer(
      "\nConfiguration keys, each as --section.key=value (`trireme config` says what they mean):\n" +
      keys_by_section() +
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
