#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "trireme/cli/cluster_choice.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/plan_report.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/signals.h"
#include "trireme/cli/stop_in_time.h"
#include "trireme/cli/validators.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/fit.h"

namespace trireme::cli {
namespace {

constexpr double kDay = 86'400;

struct FitArguments {
  std::string config = "quickstart";
  std::string cluster;
  std::string generation;
  int ranks = 0;
  std::string largest = "model";
  std::string within;
  std::string tokens;
  std::vector<std::string> clusters;
  bool json = false;
};

// "30d", "12h", or as durations of a configuration.
double parse_time(const std::string& text) {
  if (!text.empty() && text.back() == 'd')
    if (const auto days = parse_duration(text.substr(0, text.size() - 1) + "s"); days && *days > 0) return *days * kDay;
  if (!text.empty() && text.back() == 'h')
    if (const auto hours = parse_duration(text.substr(0, text.size() - 1) + "s"); hours && *hours > 0)
      return *hours * 3600;
  if (const auto seconds = parse_duration(text); seconds && *seconds > 0) return *seconds;
  refuse("--within {}: expected a time such as 30d, 12h or 90s", text);
}

train::PlanRequest plan_request(const Context& context) {
  train::PlanRequest request;
  for (const std::string& setting : context.overrides) {
    const std::string key = setting.substr(0, setting.find('='));
    if (!key.starts_with("model.")) request.fixed.push_back(key);
  }
  request.log = log_to_stderr;
  return request;
}

int cheapest(const Context& context, const FitArguments& a, const train::Config& config) {
  train::CheapestRequest request;
  std::vector<std::string> names = a.clusters;
  if (names.empty())
    for (const cluster::Builtin& builtin : cluster::builtin_clusters()) names.emplace_back(builtin.name);
  for (const std::string& name : names) request.clusters.push_back(chosen_cluster(name, a.generation));
  request.tokens = parse_tokens(a.tokens);
  request.seconds = parse_time(a.within);
  request.plan = plan_request(context);
  request.plan.search.finalists = 2;
  WorkProgress progress;
  std::size_t tried = 0;
  request.on_try = [&](const std::string& what) { progress.count("planning for " + what, tried++, 10 * names.size()); };
  const std::vector<train::Offer> offers = train::cheapest_clusters(config, *context.registry, request);
  progress.finish();
  if (a.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const train::Offer& o : offers)
      if (o.refused.empty())
        all.push_back({{"cluster", o.cluster},
                       {"ranks", o.ranks},
                       {"days", o.seconds / kDay},
                       {"cost", o.cost},
                       {"step_ms", 1e3 * o.plan.seconds},
                       {"plan", planner::describe(o.plan.candidate)}});
      else
        all.push_back({{"cluster", o.cluster}, {"refused", o.refused}});
    say(stdout, all.dump() + "\n");
    return 0;
  }
  say(stdout, "{:<10}{:>7}{:>12}{:>14}  plan\n", "cluster", "ranks", "days", "dollars");
  for (const train::Offer& o : offers)
    if (o.refused.empty())
      say(stdout, "{:<10}{:>7}{:>12.2f}{:>14.0f}  {}\n", o.cluster, o.ranks, o.seconds / kDay, o.cost,
          planner::describe(o.plan.candidate));
    else
      say(stdout, "{:<10}not in time: {}\n", o.cluster, o.refused);
  if (offers.empty() || !offers.front().refused.empty())
    refuse("no cluster trains {} tokens within {}; the nearest is above", a.tokens, a.within);
  return 0;
}

int fit(const Context& context, const FitArguments& a) {
  const train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
  if (!a.within.empty() || !a.tokens.empty()) {
    if (a.within.empty() || a.tokens.empty())
      refuse("--tokens and --within go together: how much is trained, and in which time");
    if (!a.cluster.empty() || a.ranks > 0)
      refuse("{} names one machine; with --within, --clusters names those to choose from",
             a.cluster.empty() ? "--ranks" : "--cluster");
    return cheapest(context, a, config);
  }
  if (!a.clusters.empty())
    refuse("--clusters are those to choose from with --tokens and --within; --cluster names the one to fit on");
  train::FitRequest request;
  request.plan = plan_request(context);
  request.plan.cluster = chosen_cluster(a.cluster, a.generation);
  request.plan.ranks = a.ranks > 0 ? a.ranks : train::usual_ranks(request.plan.cluster);
  request.grow = a.largest == "context" ? train::Grow::context
                 : a.largest == "batch" ? train::Grow::batch
                                        : train::Grow::model;
  Signals signals;
  request.plan.search.stop = [&] { return signals.take() == train::Request::stop; };
  WorkProgress progress;
  std::optional<StopInTime> in_time;
  in_time.emplace(signals, StopInTime::Words{.nothing_yet = "nothing was found yet that fits",
                                             .kept = "the largest so far is kept",
                                             .lost = "what was found is lost",
                                             .best = "the largest so far is"});
  std::string largest;
  request.on_try = [&](const std::string& what, std::size_t tried) {
    progress.count(fmt::format("trying {}{}", what, largest), tried, std::max<std::size_t>(16, tried + 1));
  };
  request.on_fit = [&](const std::string& what, const planner::Scored& plan) {
    largest = fmt::format(" ({} fits)", what);
    in_time->found(fmt::format("{}, by {}", what, planner::describe(plan.candidate)));
  };
  const train::Fit found = train::largest_fit(config, *context.registry, request);
  in_time.reset();
  progress.finish();
  Signals::at_once("the largest is found");
  if (found.what.empty()) {
    say(stderr, "stopped before anything was found that fits\n");
    return signals.exit_code();
  }
  if (a.json) {
    const nlohmann::ordered_json o = {{"largest", found.what},
                                      {"layers", found.config.model.layers},
                                      {"width", found.config.model.width},
                                      {"heads", found.config.model.heads},
                                      {"context", found.config.model.context},
                                      {"micro_batch", found.plan.candidate.layer.micro_batch},
                                      {"parameters", found.parameters},
                                      {"peak_bytes", found.plan.bytes},
                                      {"step_ms", 1e3 * found.plan.seconds},
                                      {"settings", train::settings_of(found.plan.candidate)},
                                      {"next", found.next},
                                      {"tried", found.tried}};
    say(stdout, o.dump() + "\n");
    return signals.exit_code();
  }
  const cluster::Cluster& c = request.plan.cluster;
  say(stdout, "largest {}: {} parameters on {} × {}\n", found.what, format_count(found.parameters), request.plan.ranks,
      c.device.name);
  say(stdout, "plan    {}\n", planner::describe(found.plan.candidate));
  say(stdout, "memory  {} B on the largest rank\n", format_count(found.plan.bytes));
  say(stdout, "step    {} of {} rows\n", seconds_text(found.plan.seconds), found.config.train.batch);
  say(stdout, "next    {}\n", found.next);
  say(stdout, "        {} sizes were planned; `trireme plan` finds the quickest plan of the largest\n", found.tried);
  return signals.exit_code();
}

}  // namespace

void add_fit(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<FitArguments>();
  CLI::App* command = app.add_subcommand(
      "fit", "The largest model, context or batch that a machine trains; the cheapest cluster for a model");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command
      ->add_option("--cluster", arguments->cluster,
                   "a100, h100, h200, b200, or a file; by default this machine, as calibrated")
      ->check(not_empty());
  command->add_option("--generation", arguments->generation, "Software, of those that the cluster describes")
      ->check(not_empty());
  command->add_option("--ranks", arguments->ranks, "Devices to use (by default one node's; of a CPU its cores)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--largest", arguments->largest, "What grows: model, context or batch")
      ->check(CLI::IsMember({"model", "context", "batch"}));
  command->add_option("--tokens", arguments->tokens, "With --within: tokens to train, 300B");
  command->add_option("--within", arguments->within, "The cheapest cluster that trains them in this time: 30d, 12h");
  command->add_option("--clusters", arguments->clusters, "Clusters to choose from (by default the built-in ones)")
      ->delimiter(',');
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme fit my.toml --cluster h100 --ranks 64                 the largest model of this family and shape\n"
      "  trireme fit my.toml --cluster a100 --largest context\n"
      "  trireme fit my.toml --cluster a100 --largest batch --memory.remat=none\n"
      "  trireme fit my.toml --tokens 300B --within 30d --clusters a100,h100\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return fit(context, *arguments); }; });
}

}  // namespace trireme::cli
