#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "trireme/cli/cluster_choice.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/plan_report.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/signals.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/atomic_file.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/plan_search.h"
#include "trireme/train/run_folder.h"

namespace trireme::cli {
namespace {

struct PlanArguments {
  std::string config = "quickstart";
  std::string cluster;
  std::string generation;
  int ranks = 0;
  std::string out;
  std::string objective = "time";
  std::string search = "levels";
  std::vector<std::string> allow;
  int finalists = 5;
  std::uint64_t seed = 1;
  bool explain = false;
  bool json = false;
};

// Ends a search that was asked to stop. Before a plan is found the process quits at once: nothing is lost. Afterwards
// the search stops between two candidates and its best is reported; where a candidate takes too long for that, the
// process ends without it, within two seconds of the signal, and names the best.
class StopInTime {
 public:
  explicit StopInTime(Signals& signals) : signals_(signals), thread_([this] { watch(); }) {
    Signals::at_once("no plan was found yet");
  }
  ~StopInTime() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  StopInTime(const StopInTime&) = delete;
  StopInTime& operator=(const StopInTime&) = delete;

  void found(const planner::Scored& best) {
    const std::lock_guard lock(mutex_);
    if (best_.empty()) Signals::between_steps("the best plan so far is kept", "the plans that were found are lost");
    best_ = fmt::format("{}, {} a step", planner::describe(best.candidate), seconds_text(best.seconds));
  }

 private:
  void watch() {
    constexpr auto kOften = std::chrono::milliseconds(50);
    constexpr auto kPatience = std::chrono::milliseconds(1500);
    std::unique_lock lock(mutex_);
    while (signals_.take() != train::Request::stop)
      if (changed_.wait_for(lock, kOften, [&] { return over_; })) return;
    if (changed_.wait_for(lock, kPatience, [&] { return over_; })) return;
    log_to_stderr(LogLevel::info,
                  fmt::format("stopped: the best plan so far is {}; the one at hand was not waited for", best_));
    flush_output();
    std::_Exit(signals_.exit_code());
  }

  Signals& signals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::string best_;
  std::thread thread_;
};

train::PlanRequest request_of(const Context& context, const PlanArguments& a) {
  train::PlanRequest request;
  request.cluster = chosen_cluster(a.cluster, a.generation);
  request.ranks = a.ranks > 0 ? a.ranks : train::usual_ranks(request.cluster);
  for (const std::string& setting : context.overrides) request.fixed.push_back(setting.substr(0, setting.find('=')));
  request.search.objective = a.objective == "cost"     ? planner::Objective::cost
                             : a.objective == "memory" ? planner::Objective::memory
                                                       : planner::Objective::time;
  request.search.method = a.search == "mcmc" ? planner::Method::mcmc : planner::Method::levels;
  const auto allows = [&](const char* what) {
    return std::find(a.allow.begin(), a.allow.end(), what) != a.allow.end();
  };
  request.precision = allows("precision");
  request.compress = allows("compress");
  request.search.finalists = a.finalists;
  request.search.seed = a.seed;
  request.log = log_to_stderr;
  return request;
}

// What the best plan would do under other circumstances: tokens per second over those of now; 0: nothing fits.
double gain(const Context& context, train::Config config, train::PlanRequest request, double now) {
  request.search.finalists = 1;
  request.search.on_progress = {};
  request.confirm = false;
  try {
    const train::PlanSearch other(std::move(config), *context.registry, request);
    const planner::SearchResult result = other.run();
    if (result.best.empty()) return 0;
    const double rows = static_cast<double>(other.config().train.batch);
    return rows / result.best.front().seconds / now;
  } catch (const Error&) {
    return 0;
  }
}

// What was given of the model, the data and the training, which a plan does not say: " --model.layers=12 …".
std::string kept_settings(const std::vector<std::string>& overrides) {
  std::string text;
  for (const std::string& setting : overrides) {
    const bool planned =
        setting.starts_with("train.micro_batch=") || setting.starts_with("parallel.") || setting.starts_with("memory.");
    if (planned) continue;
    const bool plain = setting.find_first_of(" '\"*[]$&;()<>|\\") == std::string::npos;
    text += plain ? " --" + setting : fmt::format(" '--{}'", setting);
  }
  return text;
}

// Before the search: a plan takes the place of another one, and of nothing else.
void check_out(const std::string& out) {
  if (out.empty()) return;
  if (std::filesystem::exists(out) && !train::is_plan(out))
    refuse("--out {}: that is there, and is no plan; name another file", out);
  train::check_writable(std::filesystem::absolute(out).parent_path(), "--out " + out);
}

int plan(const Context& context, const PlanArguments& a) {
  check_out(a.out);
  const train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
  train::PlanRequest request = request_of(context, a);
  Signals signals;
  WorkProgress progress;
  std::optional<StopInTime> in_time;
  in_time.emplace(signals);
  request.search.on_progress = [&](const std::string& phase, std::size_t done, std::size_t total,
                                   const planner::Scored* best) {
    if (best != nullptr && best->feasible()) in_time->found(*best);
    progress.count(best == nullptr ? phase : fmt::format("{} (best {})", phase, seconds_text(best->seconds)), done,
                   total);
  };
  request.search.stop = [&] { return signals.take() == train::Request::stop; };
  const train::PlanSearch search(config, *context.registry, request);
  PlanReport report;
  std::optional<train::PlanSearch::Winner> winner;
  report.result = search.run(&winner);
  in_time.reset();
  Signals::at_once("the search is over");
  if (report.result.best.empty()) {
    progress.finish();
    say(stderr, "stopped before a plan was found\n");
    return signals.exit_code();
  }
  const planner::Scored& best = report.result.best.front();
  report.on = std::move(winner->on);
  report.simulation = std::move(winner->simulation);
  report.objective = request.search.objective;
  report.candidate = best.candidate;
  report.limit = search.problem().limit;
  report.rows = config.train.batch;
  if (a.explain && !report.result.stopped) {
    const double now = static_cast<double>(config.train.batch) / best.seconds;
    train::Config larger = config;
    larger.train.batch *= 2;
    progress.count("a larger batch", 0, 2);
    report.larger_batch = gain(context, larger, request, now);
    train::PlanRequest more = request;
    more.ranks += train::usual_ranks(request.cluster);
    progress.count("one more node", 1, 2);
    report.another_node = gain(context, config, more, now);
  }
  progress.finish();
  const std::string file = a.out.empty() ? "plan.toml" : a.out;
  report.launch = fmt::format("mpirun -n {} trireme train {}{} --plan {}", report.on.compiled.ranks(), a.config,
                              kept_settings(context.overrides), file);
  if (!a.out.empty()) {
    if (const auto folder = std::filesystem::path(a.out).parent_path(); !folder.empty())
      std::filesystem::create_directories(folder);
    io::write_file_atomically(a.out, train::plan_file_text(report.on, report.launch));
  }
  if (a.json) {
    say(stdout, plan_json(report).dump() + "\n");
    return signals.exit_code();
  }
  say(stdout, plan_summary(report));
  if (a.explain) say(stdout, explanation(report));
  if (a.out.empty())
    say(stdout, "next    --out plan.toml writes it; then train --plan plan.toml, simulate --plan plan.toml\n");
  else
    say(stdout, "launch  {}\nwritten to {}\n", report.launch, a.out);
  return signals.exit_code();
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Search for the best way to train a model on a described cluster");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command->add_option("--cluster", arguments->cluster,
                      "a100, h100, h200, b200, or a file; by default this machine, as calibrated");
  command->add_option("--generation", arguments->generation, "Software, of those that the cluster describes");
  command->add_option("--ranks", arguments->ranks, "Devices to use (by default one node's; of a CPU its cores)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--out", arguments->out, "Write the plan, for train --plan and simulate --plan");
  command->add_option("--objective", arguments->objective, "time, cost (tokens per dollar) or memory")
      ->check(CLI::IsMember({"time", "cost", "memory"}));
  command->add_option("--search", arguments->search, "levels, or mcmc: a Markov chain over the same space")
      ->check(CLI::IsMember({"levels", "mcmc"}));
  command
      ->add_option("--allow", arguments->allow,
                   "Search also what changes the numbers that are trained: precision, compress (of gradients)")
      ->delimiter(',')
      ->check(CLI::IsMember({"precision", "compress"}));
  command->add_option("--finalists", arguments->finalists, "Plans that are compiled and simulated, at least")
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", arguments->seed, "Of the Markov chain");
  command->add_flag("--explain", arguments->explain,
                    "The ten best, why the runner-up loses, what limits the winner, what more would give");
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nKeys of the command line are kept as they are; those of the file are where the search starts.\n"
      "Ctrl-C keeps the best plan so far.\n"
      "\nExamples:\n"
      "  trireme plan my.toml --cluster a100 --ranks 64 --out plan.toml\n"
      "  trireme plan my.toml --cluster h100 --ranks 256 --explain\n"
      "  trireme plan my.toml --cluster h100 --parallel.zero=1 --memory.remat=none    these two stay\n"
      "  trireme plan my.toml --cluster my_cluster.toml --objective cost\n"
      "  trireme plan my.toml --cluster h100 --ranks 8 --allow precision,compress\n"
      "  trireme train my.toml --plan plan.toml\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return plan(context, *arguments); }; });
}

}  // namespace trireme::cli
