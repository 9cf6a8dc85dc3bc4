#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "trireme/cli/cluster_choice.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/published.h"
#include "trireme/cli/validators.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/trace_format.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"
#include "trireme/train/pipeline_warnings.h"
#include "trireme/train/plan_file.h"

namespace trireme::cli {
namespace {

constexpr int kPictureWidth = 120;
constexpr double kHour = 3600;

struct SimulateArguments {
  std::string config = "quickstart";
  std::string cluster;
  std::string generation;
  int ranks = 1;
  std::string plan;
  std::string tokens;
  std::string trace;
  std::string compare;
  std::string published;
  int width = 0;
  bool planned = false;
  bool json = false;
};

struct Run {
  std::string name;
  train::OnCluster on;
  simulator::Simulation simulation;
  double seconds = 0;  // that simulating took

  const char* unit() const { return on.images ? "images" : "tokens"; }
  double tokens_per_s() const { return on.tokens / simulation.step_seconds; }
  int ranks() const { return on.compiled.ranks(); }
  double price_per_hour() const {
    double price = 0;
    for (std::size_t a = 0; a < simulation.cast.actors.size(); ++a)
      price += simulation.cast.ranks[a] * on.cluster.device_of(simulation.cast.rank[a]).price;
    return price;
  }
};

// What is simulated: a configuration with settings over it, under a plan or none.
struct Side {
  std::string name;
  std::string config;
  std::string plan;
  std::vector<std::string> settings;
};

Run simulated(const Context& context, const SimulateArguments& a, const Side& side) {
  Preparation preparation("preparing");
  train::OnClusterOptions options{.ranks = a.ranks};
  options.log = log_to_stderr;
  options.on_phase = [&](const char* phase) { preparation.begin(phase); };
  train::Followed followed = train::load_followed(side.plan, side.config, side.settings, context.registry->models);
  options.decided = std::move(followed.plan);
  Run run{.name = side.name,
          .on = train::compile_on(followed.config, *context.registry, chosen_cluster(a.cluster, a.generation), options),
          .simulation = {}};
  for (const std::string& warning : train::pipeline_warnings(run.on.compiled))
    log_to_stderr(LogLevel::warning, warning);
  preparation.begin("simulating");
  const auto begin = std::chrono::steady_clock::now();
  run.simulation = simulator::simulate(run.on.compiled, run.on.cluster);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  preparation.finish();
  return run;
}

double tokens_of_run(const Run& run, const SimulateArguments& a) {
  return a.tokens.empty() ? run.on.tokens * static_cast<double>(run.on.config.train.steps) : parse_tokens(a.tokens);
}

nlohmann::ordered_json json_of(const Run& run, const SimulateArguments& a) {
  const simulator::Simulation& s = run.simulation;
  const double total = tokens_of_run(run, a);
  const double hours = total / run.tokens_per_s() / kHour;
  nlohmann::ordered_json o = {{"cluster", run.on.cluster.name},
                              {"generation", run.on.cluster.generation},
                              {"mesh", run.on.compiled.mesh.str()},
                              {"ranks", run.ranks()},
                              {"step_ms", 1e3 * s.step_seconds},
                              {"tokens_per_s", run.tokens_per_s()},
                              {"mfu", s.mfu()},
                              {"hfu", s.hfu()},
                              {"compute_ms", 1e3 * s.mean.compute},
                              {"exposed_comm_ms", 1e3 * s.mean.exposed_communication},
                              {"bubble_ms", 1e3 * s.mean.bubble},
                              {"waiting_ms", 1e3 * s.mean.waiting},
                              {"fits", s.fits},
                              {"tokens", total},
                              {"days", hours / 24},
                              {"cost", hours * run.price_per_hour()},
                              {"simulated_s", run.seconds}};
  o["roles"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < s.cast.actors.size(); ++i) {
    const simulator::TimeByKind& t = s.by_actor[i];
    o["roles"].push_back({{"name", s.cast.actors[i].name},
                          {"ranks", s.cast.ranks[i]},
                          {"peak_bytes", run.on.compiled.roles[s.cast.role[i]].arena_bytes},
                          {"compute_ms", 1e3 * t.compute},
                          {"exposed_comm_ms", 1e3 * t.exposed_communication},
                          {"bubble_ms", 1e3 * t.bubble},
                          {"waiting_ms", 1e3 * t.waiting}});
  }
  return o;
}

std::string milliseconds(double seconds) {
  return seconds >= 10 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.4g} ms", 1e3 * seconds);
}

// "300B", as parse_tokens reads it.
std::string count_text(double count) {
  for (const auto& [name, size] : {std::pair("T", 1e12), std::pair("B", 1e9)})
    if (count >= size) return fmt::format("{:.4g}{}", count / size, name);
  return format_rate(count);
}

std::string time_text(double hours) {
  if (hours >= 48) return fmt::format("{:.1f} days", hours / 24);
  return hours >= 2 ? fmt::format("{:.1f} hours", hours) : format_duration(hours * kHour);
}

std::string shares_text(const simulator::TimeByKind& t) {
  const auto share = [&](double seconds) { return 100 * seconds / t.total(); };
  return fmt::format("compute {:.1f}% · exposed communication {:.1f}% · pipeline bubble {:.1f}% · waiting {:.1f}%",
                     share(t.compute), share(t.exposed_communication), share(t.bubble), share(t.waiting));
}

std::string text_of(const Run& run, const SimulateArguments& a) {
  const simulator::Simulation& s = run.simulation;
  const cluster::Cluster& c = run.on.cluster;
  const std::int64_t nodes = c.node_of(run.ranks() - 1) + 1;
  std::string out = fmt::format("cluster {}: {} × {} in {} node{}, software {}\n", c.name, run.ranks(), c.device.name,
                                nodes, nodes == 1 ? "" : "s", c.generation);
  out += fmt::format(
      "mesh    {}, {} micro-batch{}{}\n", run.ranks() == 1 ? "one rank" : run.on.compiled.mesh.str(),
      run.on.compiled.micro_batches, run.on.compiled.micro_batches == 1 ? "" : "es",
      run.on.compiled.plan.stages() > 1 ? fmt::format(", pipeline {}", run.on.config.parallel.pipeline) : "");
  out += fmt::format("step    {}, {} {}/s, {}\n", milliseconds(s.step_seconds), format_rate(run.tokens_per_s()),
                     run.unit(), simulator::utilisation_text(s));
  out += fmt::format("time    {}\n", shares_text(s.mean));
  std::size_t peak = 0;
  double memory = c.memory_of(0, run.ranks());
  for (std::size_t i = 0; i < s.cast.actors.size(); ++i) {
    const std::size_t own = run.on.compiled.roles[s.cast.role[i]].arena_bytes;
    if (own <= peak) continue;
    peak = own;
    memory = c.memory_of(s.cast.rank[i], run.ranks());
  }
  out += fmt::format("memory  {} B on the largest rank, of {}{}\n", format_count(peak),
                     format_bytes(static_cast<std::uint64_t>(memory)), s.fits ? "" : ": does NOT fit");
  const double total = tokens_of_run(run, a);
  const double hours = total / run.tokens_per_s() / kHour;
  out += fmt::format("run     {} {} in {}{}\n", count_text(total), run.unit(), time_text(hours),
                     run.price_per_hour() > 0 ? fmt::format(", ${:.2f}", hours * run.price_per_hour()) : "");
  if (run.on.foreign) out += "note    this build lowers for a CPU: a GPU's workspaces and fused kernels differ\n";
  out += "\n";
  const int terminal = terminal_width(stdout);
  out += simulator::picture(s, a.width > 0 ? a.width : terminal > 0 ? terminal : kPictureWidth);
  out += "  F forward, B input gradients, W weight gradients, U update, c exposed communication, · idle\n";
  if (s.cast.actors.size() == 1) return out;
  out += fmt::format("\n  {:<24}{:>6}{:>13}{:>13}{:>13}{:>13}{:>22}\n", "role", "ranks", "compute", "exposed", "bubble",
                     "waiting", "memory, B");
  for (std::size_t i = 0; i < s.cast.actors.size(); ++i) {
    const simulator::TimeByKind& t = s.by_actor[i];
    out += fmt::format("  {:<24}{:>6}{:>13}{:>13}{:>13}{:>13}{:>22}\n", s.cast.actors[i].name, s.cast.ranks[i],
                       milliseconds(t.compute), milliseconds(t.exposed_communication), milliseconds(t.bubble),
                       milliseconds(t.waiting), format_count(run.on.compiled.roles[s.cast.role[i]].arena_bytes));
  }
  return out;
}

Side side_of(const Context& context, const SimulateArguments& a) {
  return {.name = a.plan.empty() ? a.config : fmt::format("{} --plan {}", a.config, a.plan),
          .config = a.config,
          .plan = a.plan,
          .settings = context.overrides};
}

// --compare: a plan for the same configuration, settings over it and its plan ("train.batch=64 parallel.zero=1"), or
// another configuration, which that plan is not for. The command line's keys are both sides', but for those that a plan
// has: they are the first side's.
Side other_of(const Context& context, const SimulateArguments& a) {
  Side side = side_of(context, a);
  std::error_code unknown;
  const bool file = std::filesystem::exists(a.compare, unknown);
  if (file && train::is_plan(a.compare)) {
    side.name = fmt::format("{} --plan {}", a.config, a.compare);
    side.plan = a.compare;
    std::erase_if(side.settings, [&](const std::string& text) {
      return train::names_plan_key(text.substr(0, text.find('=')), context.registry->models);
    });
  } else if (!file && a.compare.find('=') != std::string::npos) {
    side.name += " " + a.compare;
    for (const std::string& word : split(a.compare, ' '))
      if (!word.empty()) side.settings.push_back(word.starts_with("--") ? word.substr(2) : word);
  } else {
    side.name = side.config = a.compare;
    side.plan.clear();
  }
  return side;
}

std::string comparison(const Run& one, const Run& other) {
  const auto row = [](const std::string& what, const std::string& a, const std::string& b,
                      const std::string& note = "") {
    return fmt::format("  {:<24}{:>16}{:>16}  {}\n", what, a, b, note);
  };
  const auto ms = [&](const char* what, double a, double b) { return row(what, milliseconds(a), milliseconds(b)); };
  const simulator::Simulation &s = one.simulation, &t = other.simulation;
  std::string out = fmt::format("A  {}  {}\nB  {}  {}\n\n", one.name, one.on.compiled.mesh.str(), other.name,
                                other.on.compiled.mesh.str());
  out += row("", "A", "B");
  const double ratio = t.step_seconds / s.step_seconds;
  out += row("step", milliseconds(s.step_seconds), milliseconds(t.step_seconds),
             fmt::format("B takes {:.2f} times A's", ratio));
  out += row(fmt::format("{}/s", one.unit()), format_rate(one.tokens_per_s()), format_rate(other.tokens_per_s()));
  out += row("MFU", fmt::format("{:.1f}%", 100 * s.mfu()), fmt::format("{:.1f}%", 100 * t.mfu()));
  out += ms("compute", s.mean.compute, t.mean.compute);
  out += ms("exposed communication", s.mean.exposed_communication, t.mean.exposed_communication);
  out += ms("pipeline bubble", s.mean.bubble, t.mean.bubble);
  out += ms("waiting", s.mean.waiting, t.mean.waiting);
  out += row("memory, largest rank", format_bytes(one.on.compiled.arena_bytes()),
             format_bytes(other.on.compiled.arena_bytes()));
  out += row("fits", s.fits ? "yes" : "no", t.fits ? "yes" : "no");
  return out;
}

int simulate(const Context& context, const SimulateArguments& a) {
  if (a.planned && a.published.empty()) refuse("--planned is for the runs of a table: name it with --published");
  if (!a.published.empty()) return simulate_published(context, a.published, a.json, a.planned);
  if (!a.trace.empty()) {
    check_replaceable(a.trace, kTraceBeginning, "trace of trireme", "--trace " + a.trace);
    check_file_writable(a.trace, "--trace " + a.trace);
  }
  const Run run = simulated(context, a, side_of(context, a));
  if (!a.trace.empty()) write_file_atomically(a.trace, simulator::trace_json(run.simulation));
  if (a.compare.empty()) {
    say(stdout, a.json ? json_of(run, a).dump() + "\n" : text_of(run, a));
    return 0;
  }
  const Run other = simulated(context, a, other_of(context, a));
  if (a.json)
    say(stdout, nlohmann::ordered_json::array({json_of(run, a), json_of(other, a)}).dump() + "\n");
  else
    say(stdout, comparison(run, other));
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* command =
      app.add_subcommand("simulate", "Time and memory of a step on a described cluster, without running it");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command
      ->add_option("--cluster", arguments->cluster,
                   "a100, h100, h200, b200, or a file; by default this machine, as calibrated")
      ->check(not_empty());
  command->add_option("--generation", arguments->generation, "Software, of those that the cluster describes")
      ->check(not_empty());
  command->add_option("--ranks", arguments->ranks, "Ranks of parallel.mesh = \"auto\" or \"*\"")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--plan", arguments->plan, "A plan to follow, as of train --plan")->check(not_empty());
  command->add_option("--tokens", arguments->tokens, "Days and cost for so many tokens: 300B (by default the run's)");
  command->add_option("--trace", arguments->trace,
                      "Write the timeline as a Chrome trace, in the place of another one of ours");
  command->add_option("--compare", arguments->compare,
                      "Next to it: another plan, another configuration, or settings over this one: "
                      "'parallel.mesh=tp=8 parallel.zero=1'");
  command->add_option("--published", arguments->published, "A table of published runs: predicted and published")
      ->check(not_empty());
  command->add_flag("--planned", arguments->planned, "With --published: also the plan that the search finds for each");
  command->add_option("--width", arguments->width, "Columns of the picture")->check(CLI::Range(1, 1 << 16));
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme simulate my.toml --cluster h100 --parallel.mesh=pp=2,dp=4,tp=8\n"
      "  trireme simulate my.toml --cluster a100 --tokens 300B\n"
      "  trireme simulate my.toml --cluster my_cluster.toml --trace step.json\n"
      "  trireme simulate my.toml --cluster h100 --compare 'parallel.mesh=dp=8 parallel.zero=3'\n"
      "  trireme simulate my.toml --cluster h100 --plan one.toml --compare other.toml\n"
      "  trireme simulate --published bench/published_runs.csv\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return simulate(context, *arguments); }; });
}

}  // namespace trireme::cli
