// Several ranks together: how their speed grows with their number.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "trireme/cli/bench.h"
#include "trireme/cli/cluster_choice.h"
#include "trireme/cli/rank_timing.h"
#include "trireme/cli/validators.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {
namespace {

struct RankArguments {
  std::string config = "quickstart";
  std::vector<int> ranks = {1, 2, 4};
  int steps = 10;
  bool json = false;
  bool simulated = false;
  std::string cluster;  // of the simulated line
};

// Seconds of the same step on a described cluster, or on this machine as it was calibrated.
double simulated(Context& context, const RankArguments& a, const std::vector<std::string>& settings) {
  std::vector<std::string> overrides = context.overrides;
  overrides.insert(overrides.end(), settings.begin(), settings.end());
  const train::OnCluster on = train::compile_on(train::load_config(a.config, overrides, context.registry->models),
                                                *context.registry, chosen_cluster(a.cluster, ""));
  return simulator::simulate(on.compiled, on.cluster).step_seconds;
}

std::string bar(double length, const char* mark) {
  std::string text;
  for (long i = 0; i < std::lround(length * 6); ++i) text += mark;
  return text;
}

std::int64_t batch_of(Context& context, const RankArguments& a) {
  return train::load_config(a.config, context.overrides, context.registry->models).train.batch;
}

// Of one kind of scaling over links of one kind: a measured line for each number of ranks, and a simulated one.
void add_lines(Context& context, const RankArguments& a, std::int64_t batch, bool weak, const std::string& link,
               nlohmann::ordered_json& all) {
  double first = 0;
  double first_simulated = 0;
  for (const int ranks : a.ranks) {
    const std::int64_t rows = weak ? batch * ranks : batch;
    if (rows % ranks != 0) refuse("--ranks {}: does not divide {} rows", ranks, rows);
    const std::vector<std::string> settings = {fmt::format("parallel.mesh=dp={}", ranks),
                                               fmt::format("train.batch={}", rows), "train.micro_batch=0",
                                               "runtime.threads=1", "runtime.link=" + link};
    const RankTiming t = time_ranks(context, a.config, settings, a.steps);
    const double predicted = a.simulated ? simulated(context, a, settings) : 0;
    const double rate = t.tokens / t.step;
    if (first == 0) first = rate / ranks;
    if (a.simulated && first_simulated == 0) first_simulated = t.tokens / predicted / ranks;
    const double speedup = rate / first;
    all.push_back({{"kind", weak ? "weak" : "strong"},
                   {"ranks", ranks},
                   {"rows", rows},
                   {"link", link},
                   {"step_ms", t.step * 1e3},
                   {"tokens_per_s", rate},
                   {"speed_up", speedup},
                   {"efficiency", speedup / ranks},
                   {"exposed_comm_ms", t.exposed * 1e3},
                   {"sent_bytes", t.sent}});
    if (a.simulated) {
      all.back()["simulated_step_ms"] = predicted * 1e3;
      all.back()["simulated_speed_up"] = t.tokens / predicted / first_simulated;
    }
    if (a.json) continue;
    const std::string reached = bar(speedup, "█");
    const auto missing = std::max(0.0, ranks - speedup);
    fmt::print("{:>6}{:>8}{:>9.1f} ms{:>14}{:>9.2f}×{:>11.0f}%  {}{}\n", ranks, rows, t.step * 1e3, format_rate(rate),
               speedup, 100 * speedup / ranks, reached, bar(missing, "·"));
    if (!a.simulated) continue;
    const double expected = t.tokens / predicted / first_simulated;
    fmt::print("{:>14}{:>9.1f} ms{:>14}{:>9.2f}×{:>11.0f}%  {}{}\n", "simulated", predicted * 1e3,
               format_rate(t.tokens / predicted), expected, 100 * expected / ranks, bar(expected, "▒"),
               bar(std::max(0.0, ranks - expected), "·"));
  }
}

int bench_scaling(Context& context, const RankArguments& a) {
  constexpr std::array<std::string_view, 3> kSet = {"parallel.mesh", "train.micro_batch", "runtime.threads"};
  refuse_keys(context, "scaling", kSet, "it times the numbers of ranks that --ranks names, over dp, one thread each");
  const std::int64_t batch = batch_of(context, a);
  const train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
  const bool images = context.registry->models.at(config.model.family).images;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  // With simulated lines: what is measured between threads, what over emulated links, and what is simulated of each.
  std::vector<std::string> links = {config.runtime.link};
  if (a.simulated && !config.runtime.link.empty()) links.insert(links.begin(), "");
  if (!a.json)
    fmt::print("{} cores, one compute thread per rank{}\n", cores,
               config.runtime.link.empty() ? "" : fmt::format("; links are emulated: {}", config.runtime.link));
  for (const bool weak : {true, false}) {
    if (!a.json)
      fmt::print(
          "\n{}\n{:>6}{:>8}{:>12}{:>14}{:>10}{:>12}\n",
          weak ? fmt::format("weak: {} rows for each rank", batch) : fmt::format("strong: {} rows in all", batch),
          "ranks", "rows", "step", images ? "images/s" : "tokens/s", "speed-up", "efficiency");
    for (const std::string& link : links) {
      if (!a.json && links.size() > 1) fmt::print("{}\n", link.empty() ? "threads" : "emulated: " + link);
      add_lines(context, a, batch, weak, link, all);
    }
  }
  if (a.json)
    fmt::print("{}\n", all.dump());
  else
    fmt::print("\n█ reached  {}· to the ideal, which {} cores can only give to {} ranks\n",
               a.simulated ? "▒ simulated  " : "", cores, cores);
  return 0;
}

}  // namespace

void add_bench_scaling(CLI::App& bench, Context& context) {
  auto a = std::make_shared<RankArguments>();
  CLI::App* scaling = bench.add_subcommand("scaling", "Speed against the number of ranks, weak and strong");
  scaling->add_option("config", a->config, "A TOML file, a run folder, or a built-in configuration");
  scaling->add_option("--ranks", a->ranks, "Numbers of ranks, the first for comparison")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  scaling->add_option("--steps", a->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  scaling->add_flag("--simulated", a->simulated, "A simulated line under each that is measured or emulated");
  scaling->add_option("--cluster", a->cluster, "Of the simulated line; by default this machine, as calibrated")
      ->check(not_empty());
  scaling->add_flag("--json", a->json, "For scripts");
  scaling->footer(
      "\nExamples:\n"
      "  trireme bench scaling --ranks 1,2\n"
      "  trireme bench scaling --ranks 1,2,4,8 --runtime.link=100MB/s,50us      (links are emulated)\n"
      "  trireme calibrate && trireme bench scaling --ranks 1,2 --simulated\n"
      "  trireme bench scaling --ranks 1,2,4 --simulated --runtime.link=1GB/s,20us      (both, and simulated)\n");
  scaling->callback([&context, a] { context.run = [&context, a] { return bench_scaling(context, *a); }; });
}

}  // namespace trireme::cli
