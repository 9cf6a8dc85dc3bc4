#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "trireme/cli/bench.h"
#include "trireme/cli/bench_chosen.h"
#include "trireme/cli/calibration.h"
#include "trireme/cli/measured_step.h"
#include "trireme/cli/output.h"
#include "trireme/cli/token_file.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/core/rng.h"
#include "trireme/core/undisturbed.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {
namespace {

struct PlansArguments {
  bool chosen = false;
  int cases = 10;
  int of = 30;
  int plans = 40;
  int steps = 7;
  std::uint64_t seed = 1;
  std::string keep;
  std::string from;
  bool json = false;
};

// Settings of a random plan; the same for the same seed.
std::vector<std::string> random_plan(SplitMix& random, const std::string& tokens) {
  const auto pick = [&]<std::size_t N>(const std::array<const char*, N>& of) {
    return std::string(of[static_cast<std::size_t>(random.unit() * N)]);
  };
  const std::string family = pick(std::array{"gpt2", "llama"});
  const std::string mesh =
      pick(std::array{"dp=1", "dp=2", "dp=4", "tp=2", "pp=2", "pp=2,dp=2", "dp=2,tp=2", "pp=2,tp=2", "pp=4"});
  std::vector<std::string> settings = {"model.family=" + family,
                                       "model.layers=4",
                                       "model.heads=4",
                                       "model.vocab=256",
                                       "model.width=" + pick(std::array{"64", "128", "256"}),
                                       "model.context=" + pick(std::array{"64", "128"}),
                                       "data.tokens=" + tokens,
                                       "train.batch=16",
                                       "train.micro_batch=" + pick(std::array{"1", "2", "4"}),
                                       "runtime.device=cpu",
                                       "parallel.mesh=" + mesh};
  const bool stages = mesh.find("pp") != std::string::npos;
  if (mesh != "dp=1") settings.push_back("runtime.link=" + pick(std::array{"", "1GB/s,20us", "200MB/s,50us"}));
  if (mesh.starts_with("dp=2") || mesh == "dp=4")
    settings.push_back("parallel.zero=" + pick(std::array{"0", "1", "3"}));
  if (stages) settings.push_back("parallel.pipeline=" + pick(std::array{"gpipe", "1f1b", "zero-bubble"}));
  if (!stages) settings.push_back("memory.remat=" + pick(std::array{"none", "none", "full"}));
  return settings;
}

struct Compared {
  std::string plan;
  std::string kind;  // what may be wrong in common: one rank, dp, tp, pp; threads or emulated links
  double measured = 0;
  double predicted = 0;
  double error() const { return predicted / measured - 1; }
};

std::string plan_name(const std::vector<std::string>& settings) {
  std::string name;
  for (const std::string& s : settings) {
    const std::string key = s.substr(0, s.find('='));
    const std::string value = s.substr(s.find('=') + 1);
    if (key == "model.layers" || key == "model.heads" || key == "model.vocab" || key == "data.tokens" ||
        key == "train.batch" || key == "runtime.device" || value.empty())
      continue;
    name += (name.empty() ? "" : " ") + (key == "model.family" || key == "parallel.mesh" || key == "parallel.pipeline"
                                             ? value
                                             : key.substr(key.find('.') + 1) + "=" + value);
  }
  return name;
}

struct Summary {
  double within_10 = 0;
  double worst = 0;
  double median_error = 0;
  std::size_t pairs = 0;  // that differ by more than a tenth
  std::size_t ordered = 0;
};

Summary summary_of(const std::vector<Compared>& all) {
  Summary s;
  std::vector<double> errors;
  for (const Compared& c : all) {
    errors.push_back(std::abs(c.error()));
    s.within_10 += errors.back() <= 0.1 ? 1.0 / static_cast<double>(all.size()) : 0;
    s.worst = std::max(s.worst, errors.back());
  }
  s.median_error = median(errors);
  for (const Compared& a : all)
    for (const Compared& b : all)
      if (a.measured > 1.1 * b.measured) {
        ++s.pairs;
        s.ordered += a.predicted > b.predicted ? 1 : 0;
      }
  return s;
}

std::string kind_of(const train::Config& config) {
  const ir::Mesh mesh = train::mesh_of(config);
  std::string kind;
  for (const ir::Mesh::Axis& axis : mesh.axes)
    if (axis.size > 1) kind += (kind.empty() ? "" : "×") + axis.name;
  if (kind.empty()) return "one rank";
  if (config.parallel.zero > 0) kind += " ZeRO";
  return kind + (config.runtime.link.empty() ? ", threads" : ", emulated");
}

// By how much predictions are off in common, by kind of plan.
std::string biases(const std::vector<Compared>& all) {
  std::map<std::string, std::vector<double>> by_kind;
  for (const Compared& c : all) by_kind[c.kind].push_back(c.error());
  std::string out = fmt::format("\n{:<24}{:>7}{:>10}\n", "kind", "plans", "median");
  for (const auto& [kind, errors] : by_kind)
    out += fmt::format("{:<24}{:>7}{:>+9.1f}%\n", kind, errors.size(), 100 * median(errors));
  return out;
}

// In rounds, so that a busy moment does not fall on one plan alone; all steps count as kernels do that are measured.
void measure(const Context& context, const PlansArguments& a, const std::vector<train::Config>& configs,
             std::vector<Compared>& results, WorkProgress& progress) {
  constexpr int kRounds = 3;
  std::vector<std::vector<double>> steps(configs.size());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < configs.size(); ++i) {
      progress.count("running plans", static_cast<std::size_t>(round) * configs.size() + i, kRounds * configs.size());
      Measuring measuring{.steps = a.steps};
      if (!a.keep.empty() && round + 1 == kRounds) measuring.trace = fmt::format("{}/plan{:02}", a.keep, i);
      const std::vector<double> own = measured_steps(configs[i], *context.registry, measuring);
      steps[i].insert(steps[i].end(), own.begin(), own.end());
    }
  for (std::size_t i = 0; i < configs.size(); ++i) results[i].measured = undisturbed(steps[i]);
}

constexpr const char* kKeptCluster = "cluster.toml";
constexpr const char* kKeptSteps = "measured.json";

// What an earlier run with --keep measured of the same plans.
void read_measured(const PlansArguments& a, std::vector<Compared>& results) {
  const std::string file = a.from + "/" + kKeptSteps;
  std::ifstream in(file);
  if (!in) refuse("--from {}: {} cannot be read; `trireme bench plans --keep {}` makes it", a.from, file, a.from);
  const nlohmann::json kept = parse_json(in);
  if (!kept.is_array()) refuse("--from {}: {} is not what --keep writes", a.from, file);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i >= kept.size() || kept[i].value("plan", "") != results[i].plan)
      refuse("--from {}: it has {} plans of another seed or number; give --seed and --plans as then", a.from,
             kept.size());
    results[i].measured = kept[i].value("measured", 0.0);
  }
}

void keep(const PlansArguments& a, const cluster::Cluster& cluster, const std::vector<Compared>& results) {
  keep_calibration(cluster, a.keep + "/" + kKeptCluster);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Compared& c : results) all.push_back({{"plan", c.plan}, {"measured", c.measured}});
  write_file_atomically(a.keep + "/" + kKeptSteps, all.dump(1) + "\n");
}

int bench_plans(const Context& context, const PlansArguments& a) {
  const TokenFile tokens;
  SplitMix random(static_cast<std::uint64_t>(a.seed));
  std::vector<train::Config> configs;
  std::vector<Compared> results;
  if (!a.keep.empty() && !a.from.empty()) refuse("--keep and --from: what is measured is kept, or was; give one");
  if (!a.keep.empty()) std::filesystem::create_directories(a.keep);
  while (static_cast<int>(configs.size()) < a.plans) {
    const std::vector<std::string> settings = random_plan(random, tokens.path());
    configs.push_back(train::parse_config("", "plan", settings, context.registry->models));
    results.push_back({plan_name(settings), kind_of(configs.back())});
  }
  WorkProgress progress;
  cluster::Cluster cluster;
  if (a.from.empty()) {
    cluster = calibrated(configs, *context.registry, device::Kind::cpu, progress, Calibration::quick);
    measure(context, a, configs, results, progress);
    if (!a.keep.empty()) keep(a, cluster, results);
  } else {
    read_measured(a, results);
    cluster = cluster::load_cluster(a.from + "/" + kKeptCluster);
  }
  for (std::size_t i = 0; i < configs.size(); ++i) {
    progress.count("simulating plans", i, configs.size());
    const train::OnCluster on = train::compile_on(configs[i], *context.registry, cluster);
    const simulator::Simulation simulation = simulator::simulate(on.compiled, on.cluster);
    results[i].predicted = simulation.step_seconds;
    if (!a.keep.empty())
      write_file_atomically(fmt::format("{}/plan{:02}.simulated.json", a.keep, i), simulator::trace_json(simulation));
  }
  progress.finish();
  const Summary s = summary_of(results);
  if (a.json) {
    nlohmann::ordered_json o = {{"within_10", s.within_10}, {"worst", s.worst},
                                {"median", s.median_error}, {"pairs", s.pairs},
                                {"ordered", s.ordered},     {"plans", nlohmann::ordered_json::array()}};
    for (const Compared& c : results)
      o["plans"].push_back({{"plan", c.plan},
                            {"kind", c.kind},
                            {"measured_ms", 1e3 * c.measured},
                            {"predicted_ms", 1e3 * c.predicted},
                            {"error", c.error()}});
    say(stdout, o.dump() + "\n");
    return 0;
  }
  say(stdout, "{:>12}{:>12}{:>9}  plan\n", "measured", "predicted", "error");
  for (const Compared& c : results)
    say(stdout, "{:>9.2f} ms{:>9.2f} ms{:>+8.1f}%  {}\n", 1e3 * c.measured, 1e3 * c.predicted, 100 * c.error(), c.plan);
  say(stdout, biases(results));
  say(stdout, "\nerror: {:.1f}% in the median, {:.1f}% at most; {:.0f}% of {} plans within 10%\n", 100 * s.median_error,
      100 * s.worst, 100 * s.within_10, results.size());
  if (s.pairs > 0)
    say(stdout, "order: {:.1f}% of {} pairs that differ by more than 10% are ordered as measured\n",
        100.0 * static_cast<double>(s.ordered) / static_cast<double>(s.pairs), s.pairs);
  std::array<double, 1> load{};
  if (::getloadavg(load.data(), 1) == 1 && load[0] > 1.5 * static_cast<double>(cluster.node.cores))
    say(stdout, "load:  {:.1f} on {} cores: other work takes part of them, and the measured times with it\n", load[0],
        cluster.node.cores);
  return 0;
}

}  // namespace

void add_bench_plans(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<PlansArguments>();
  CLI::App* command =
      bench.add_subcommand("plans", "Random plans on this machine: the simulated step and the measured one");
  command->add_option("--plans", arguments->plans, "How many")->check(CLI::Range(1, 1000));
  command
      ->add_option("--steps", arguments->steps,
                   "Steps of each, in each of three rounds; their lower quartile counts, as of kernels")
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", arguments->seed, "Which plans");
  command->add_flag(
      "--chosen", arguments->chosen,
      "Instead: models and numbers of ranks for each of which the planner's choice is measured among others");
  command->add_option("--cases", arguments->cases, "--chosen: how many")->check(CLI::Range(1, 10));
  command->add_option("--of", arguments->of, "--chosen: plans that are measured of each, the choice among them")
      ->check(CLI::Range(2, 1000));
  command->add_option("--keep", arguments->keep,
                      "Folder for the calibration, the measured steps, and traces of what ran and what was simulated");
  command->add_option("--from", arguments->from, "Such a folder: simulate the same plans again, and measure nothing");
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme bench plans                               predicted and measured steps of 40 random plans\n"
      "  trireme bench plans --keep plans/                 what was measured and traced stays there\n"
      "  trireme bench plans --chosen --cases 2 --of 10    how far the planner's choice is from the best measured\n");
  command->callback([&context, arguments] {
    context.run = [&context, arguments] {
      return arguments->chosen ? bench_chosen(context, arguments->cases, arguments->of, arguments->steps,
                                              static_cast<std::uint64_t>(arguments->seed), arguments->json)
                               : bench_plans(context, *arguments);
    };
  });
}

}  // namespace trireme::cli
