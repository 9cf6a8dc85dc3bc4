// Several ranks together: how their speed grows with their number, and how much of their communication is hidden.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "trireme/cli/bench.h"
#include "trireme/cli/cluster_choice.h"
#include "trireme/comm/threads/link.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

// Seconds of a step, medians over several, and bytes that a rank sent in one.
struct Timing {
  double step = 0;
  double forward = 0;
  double backward = 0;
  double update = 0;
  double exposed = 0;
  double sent = 0;
  double tokens = 0;  // in a step
};

Timing timed(Context& context, const std::string& source, const std::vector<std::string>& settings, int steps) {
  std::vector<std::string> overrides = context.overrides;
  overrides.insert(overrides.end(), settings.begin(), settings.end());
  train::TrainerOptions options;
  options.write = false;
  train::Trainer trainer(train::load_config(source, overrides, context.registry->models), *context.registry, options);
  trainer.start();
  const train::Config& c = trainer.config();
  data::Loader loader = trainer.batches();
  constexpr int kWarmup = 2;
  std::vector<double> step;
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> update;
  std::vector<double> exposed;
  std::uint64_t sent = 0;
  for (int i = 0; i < kWarmup + steps; ++i) {
    const data::Batch& batch = loader.next();
    sent = trainer.session().sent_bytes();
    const auto begin = std::chrono::steady_clock::now();
    trainer.session().step(batch, i, train::learning_rate(c.train, i), c.train.seed);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    sent = trainer.session().sent_bytes() - sent;
    if (i < kWarmup) continue;
    const runtime::Executor& executor = trainer.session().step_executor();
    const auto& phases = executor.phase_seconds();
    step.push_back(seconds);
    forward.push_back(phases[0]);
    backward.push_back(phases[1] + phases[2]);
    update.push_back(phases[3]);
    exposed.push_back(executor.exposed_comm_seconds());
  }
  return {median(step),
          median(forward),
          median(backward),
          median(update),
          median(exposed),
          static_cast<double>(sent),
          static_cast<double>(c.train.batch * trainer.data().train->tokens_per_sample())};
}

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
    const Timing t = timed(context, a.config, settings, a.steps);
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
  const std::int64_t batch = batch_of(context, a);
  const train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
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
          "ranks", "rows", "step", "tokens/s", "speed-up", "efficiency");
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

// What the command line gives a key; empty: nothing.
std::string given(const Context& context, const std::string& key) {
  std::string value;
  for (const std::string& setting : context.overrides)
    if (setting.starts_with(key + "=")) value = setting.substr(key.size() + 1);
  return value;
}

// Of a mesh that shards more than rows, ranks wait for each other in the forward pass too: what could be hidden is
// hidden behind the whole step.
int bench_overlap_of_mesh(Context& context, const RankArguments& a, const std::string& mesh) {
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"runtime.threads=1", "parallel.allreduce=ring"});
    return timed(context, a.config, more, a.steps);
  };
  const Timing free = with({"runtime.link="});
  // As named, or so slow that sending takes half as long as the step.
  std::string link = given(context, "runtime.link");
  double rate = 2 * free.sent / free.step;
  if (const auto known = comm::threads::parse_link(link); known) {
    if (known->bytes_per_second <= 0)
      refuse("runtime.link = \"{}\" needs a bandwidth here, such as 100MB/s,20us", link);
    rate = known->bytes_per_second;
  } else {
    link = fmt::format("{:.0f}B/s,10us", rate);
  }
  const Timing free_apart = with({"runtime.link=", "parallel.overlap=false"});
  const Timing apart = with({"runtime.link=" + link, "parallel.overlap=false"});
  const Timing together = with({"runtime.link=" + link});
  const double comm = free.sent / rate;
  // Ranks wait for each other without a link too: what the link adds to a step is what shows of it.
  const double shown = std::max(0.0, together.step - free.step);
  const double shown_apart = std::max(0.0, apart.step - free_apart.step);
  if (a.json) {
    const nlohmann::ordered_json o = {{"mesh", mesh},
                                      {"link", link},
                                      {"sent_bytes", free.sent},
                                      {"step_without_link_ms", free.step * 1e3},
                                      {"step_without_link_or_overlap_ms", free_apart.step * 1e3},
                                      {"comm_ms", comm * 1e3},
                                      {"step_ms", together.step * 1e3},
                                      {"step_without_overlap_ms", apart.step * 1e3},
                                      {"hidden", std::max(0.0, 1 - shown / comm)},
                                      {"hidden_without_overlap", std::max(0.0, 1 - shown_apart / comm)},
                                      {"exposed_comm_ms", together.exposed * 1e3},
                                      {"exposed_without_overlap_ms", apart.exposed * 1e3}};
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("{} as threads; the link between them is emulated: {}\n", mesh, link);
  fmt::print("each rank sends {} a step: {:.1f} ms on that link\n\n", format_bytes(static_cast<std::size_t>(free.sent)),
             comm * 1e3);
  fmt::print("                 without a link     with it     of what it takes, shows\n");
  const auto line = [&](const char* how, const Timing& none, const Timing& linked, double more) {
    fmt::print("{:<16} {:>11.1f} ms {:>8.1f} ms {:>14.1f} ms, {:.0f}%\n", how, none.step * 1e3, linked.step * 1e3,
               more * 1e3, 100 * more / comm);
  };
  line("without overlap", free_apart, apart, shown_apart);
  line("with overlap", free, together, shown);
  fmt::print("\n{}\n", hidden_text(shown, comm));
  return 0;
}

int bench_overlap(Context& context, const RankArguments& a, int ranks) {
  if (const std::string mesh = given(context, "parallel.mesh"); !mesh.empty())
    return bench_overlap_of_mesh(context, a, mesh);
  const std::string mesh = fmt::format("parallel.mesh=dp={}", ranks);
  const std::vector<std::string> common = {mesh, "runtime.threads=1", "parallel.allreduce=ring"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return timed(context, a.config, more, a.steps);
  };
  const Timing free = with({"runtime.link="});
  // So slow that sending takes as long as the backward pass.
  const double rate = free.sent / free.backward;
  const std::string link = fmt::format("runtime.link={:.0f}B/s,10us", rate);
  const Timing apart = with({link, "parallel.overlap=false"});
  const Timing together = with({link});
  const double comm = free.sent / rate;
  const double law = free.forward + free.update + std::max(free.backward, comm);
  const double sum = free.forward + free.update + free.backward + comm;
  if (a.json) {
    const nlohmann::ordered_json o = {{"ranks", ranks},
                                      {"link", link.substr(13)},
                                      {"sent_bytes", free.sent},
                                      {"forward_ms", free.forward * 1e3},
                                      {"backward_ms", free.backward * 1e3},
                                      {"update_ms", free.update * 1e3},
                                      {"comm_ms", comm * 1e3},
                                      {"step_ms", together.step * 1e3},
                                      {"step_without_overlap_ms", apart.step * 1e3},
                                      {"against_max", together.step / law},
                                      {"without_against_sum", apart.step / sum},
                                      {"hidden", std::max(0.0, 1 - together.exposed / comm)},
                                      {"exposed_comm_ms", together.exposed * 1e3}};
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("{} ranks as threads; the link between them is emulated: {}\n\n", ranks, link.substr(13));
  fmt::print("computed    forward {:.1f} ms · backward {:.1f} ms · update {:.1f} ms (measured without a link)\n",
             free.forward * 1e3, free.backward * 1e3, free.update * 1e3);
  fmt::print("sent        {} by each rank: {:.1f} ms on that link\n\n",
             format_bytes(static_cast<std::size_t>(free.sent)), comm * 1e3);
  fmt::print("                     step      forward + update + max(backward, comm)   … + sum of both\n");
  fmt::print("with overlap     {:>7.1f} ms {:>24.2f}× of {:.1f} ms\n", together.step * 1e3, together.step / law,
             law * 1e3);
  fmt::print("without          {:>7.1f} ms {:>56.2f}× of {:.1f} ms\n", apart.step * 1e3, apart.step / sum, sum * 1e3);
  fmt::print("\n{}\n", hidden_text(together.exposed, comm));
  return 0;
}

}  // namespace

std::string hidden_text(double exposed, double communication) {
  if (exposed <= communication)
    return fmt::format("hidden behind the computation: {:.0f}% of the communication",
                       100 * (1 - exposed / communication));
  return fmt::format("nothing is hidden: {:.1f} ms show, {:.1f}× what the link takes", exposed * 1e3,
                     exposed / communication);
}

void add_bench_ranks(CLI::App& bench, Context& context) {
  auto a = std::make_shared<RankArguments>();
  CLI::App* scaling = bench.add_subcommand("scaling", "Speed against the number of ranks, weak and strong");
  scaling->add_option("config", a->config, "A TOML file, a run folder, or a built-in configuration");
  scaling->add_option("--ranks", a->ranks, "Numbers of ranks, the first for comparison")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  scaling->add_option("--steps", a->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  scaling->add_flag("--simulated", a->simulated, "A simulated line under each that is measured or emulated");
  scaling->add_option("--cluster", a->cluster, "Of the simulated line; by default this machine, as calibrated");
  scaling->add_flag("--json", a->json, "For scripts");
  scaling->footer(
      "\nExamples:\n"
      "  trireme bench scaling --ranks 1,2\n"
      "  trireme bench scaling --ranks 1,2,4,8 --runtime.link=100MB/s,50us      (links are emulated)\n"
      "  trireme calibrate && trireme bench scaling --ranks 1,2 --simulated\n"
      "  trireme bench scaling --ranks 1,2,4 --simulated --runtime.link=1GB/s,20us      (both, and simulated)\n");
  scaling->callback([&context, a] { context.run = [&context, a] { return bench_scaling(context, *a); }; });

  auto ranks = std::make_shared<int>(2);
  CLI::App* overlap = bench.add_subcommand("overlap", "How much communication hides behind the computation");
  overlap->add_option("config", a->config, "A TOML file, a run folder, or a built-in configuration");
  overlap->add_option("--ranks", *ranks, "Number of ranks")->check(CLI::Range(2, 64));
  overlap->add_option("--steps", a->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  overlap->add_flag("--json", a->json, "For scripts");
  overlap->footer(
      "\nExamples:\n"
      "  trireme bench overlap --parallel.bucket=256KiB\n"
      "  trireme bench overlap --parallel.mesh=tp=2 --parallel.sequence=true --parallel.async_tp=true\n"
      "  trireme bench overlap convnet --parallel.mesh=h=2 --runtime.link=100MB/s,20us\n");
  overlap->callback(
      [&context, a, ranks] { context.run = [&context, a, ranks] { return bench_overlap(context, *a, *ranks); }; });
}

}  // namespace trireme::cli
