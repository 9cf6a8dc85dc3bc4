#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "trireme/cli/cluster_choice.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/plan_report.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/shell_texts.h"
#include "trireme/cli/signals.h"
#include "trireme/cli/stop_in_time.h"
#include "trireme/cli/validators.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/plan_search.h"

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
    text += " " + shell_word("--" + setting);
  }
  return text;
}

int plan(const Context& context, const PlanArguments& a) {
  check_plan_out("--out", a.out);
  const train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
  train::PlanRequest request = request_of(context, a);
  Signals signals;
  WorkProgress progress("left in this phase");
  std::optional<StopInTime> in_time;
  in_time.emplace(signals, StopInTime::Words{.nothing_yet = "no plan was found yet",
                                             .kept = "the best plan so far is kept",
                                             .lost = "the plans that were found are lost",
                                             .best = "the best plan so far is"});
  request.search.on_progress = [&](const std::string& phase, std::size_t done, std::size_t total,
                                   const planner::Scored* best) {
    if (best != nullptr && best->feasible())
      in_time->found(fmt::format("{}, {} a step", planner::describe(best->candidate), seconds_text(best->seconds)));
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
  report.launch = fmt::format("mpirun -n {} trireme train {}{} --plan {}", report.on.compiled.ranks(),
                              shell_word(a.config), kept_settings(context.overrides), shell_word(file));
  if (!a.out.empty()) {
    write_plan(a.out, train::plan_file_text(report.on, report.launch));
  }
  if (a.json) {
    say(stdout, plan_json(report).dump() + "\n");
    return signals.exit_code();
  }
  say(stdout, plan_summary(report));
  if (a.explain) say(stdout, explanation(report));
  if (a.out.empty())
    say(stdout,
        "next    --out plan.toml writes it; then simulate --plan plan.toml, and on such a machine train --plan "
        "plan.toml\n");
  else
    say(stdout, "launch  {}\nwritten to {}, for a machine with {} × {}; simulate --plan shows it anywhere\n",
        report.launch, a.out, report.on.compiled.ranks(), request.cluster.device.name);
  return signals.exit_code();
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Search for the best way to train a model on a described cluster");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command
      ->add_option("--cluster", arguments->cluster,
                   "a100, h100, h200, b200, or a file; by default this machine, as calibrated")
      ->check(not_empty());
  command->add_option("--generation", arguments->generation, "Software, of those that the cluster describes");
  command->add_option("--ranks", arguments->ranks, "Devices to use (by default one node's; of a CPU its cores)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--out", arguments->out, "Write the plan, for train --plan and simulate --plan")
      ->check(not_empty());
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
