#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "trireme/cli/bench.h"
#include "trireme/cli/plain_copies.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/planner/machine.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

using program::Instruction;

struct OffloadArguments {
  std::string config = "quickstart";
  int steps = 5;
  int warmup = 1;
  bool json = false;
};

using PerPhase = std::array<double, 3>;

struct Timed {
  double step = 0;  // seconds, median
  float first_loss = 0;
  float last_loss = 0;
  PerPhase compute{};
  PerPhase waited{};
  double host = 0;  // seconds of launches on the host's cores
};

PerPhase by_phase(const std::array<double, 4>& p) { return {p[0], p[1] + p[2], p[3]}; }

Timed time_steps(train::Trainer& trainer, const OffloadArguments& a) {
  Timed timed;
  trainer.start();
  const train::Config& c = trainer.config();
  data::Loader loader = trainer.batches();
  std::vector<double> seconds;
  std::array<std::vector<double>, 3> compute;
  std::array<std::vector<double>, 3> waited;
  std::vector<double> host;
  for (int i = 0; i < a.warmup + a.steps; ++i) {
    const data::Batch& batch = loader.next();
    train::StepResult result;
    const double s =
        seconds_of([&] { result = trainer.session().step(batch, i, train::learning_rate(c.train, i), c.train.seed); });
    if (i == 0) timed.first_loss = result.loss;
    timed.last_loss = result.loss;
    if (i < a.warmup) continue;
    seconds.push_back(s);
    host.push_back(trainer.session().step_executor().host_seconds());
    const PerPhase now = by_phase(trainer.session().step_executor().phase_seconds());
    const PerPhase wait = by_phase(trainer.session().step_executor().wait_seconds());
    for (std::size_t p = 0; p < kPhases.size(); ++p) {
      compute[p].push_back(now[p]);
      waited[p].push_back(wait[p]);
    }
  }
  timed.step = median(seconds);
  timed.host = median(host);
  for (std::size_t p = 0; p < kPhases.size(); ++p) {
    timed.compute[p] = median(compute[p]);
    timed.waited[p] = median(waited[p]);
  }
  // A GPU's phases contain what they wait for, unless every instruction is timed.
  if (trainer.compiled().device() != device::Kind::cpu) {
    runtime::Trace trace(trainer.compiled().roles.front().program("step").instructions.size());
    trainer.session().step_executor().set_trace(&trace);
    trainer.session().step(loader.next(), a.warmup + a.steps, c.train.lr, c.train.seed);
    trainer.session().step_executor().set_trace(nullptr);
    const PerPhase computed = by_phase(trainer.session().step_executor().phase_seconds());
    for (std::size_t p = 0; p < kPhases.size(); ++p) {
      timed.waited[p] = std::max(0.0, timed.compute[p] - computed[p]);
      timed.compute[p] = computed[p];
    }
  }
  return timed;
}

train::Config plain(train::Config config) {
  config.memory.offload = "none";
  config.memory.offload_update = "device";
  config.memory.limit = {};
  config.output.staging = "4KiB";
  return config;
}

// What the program's launches on the host read and write there.
double host_bytes(const program::Program& program) {
  double bytes = 0;
  for (const Instruction& i : program.instructions) {
    if (!i.on_host) continue;
    for (const program::Operand& o : i.inputs) bytes += static_cast<double>(o.type.bytes());
    for (const program::Operand& o : i.outputs) bytes += static_cast<double>(o.type.bytes());
  }
  return bytes;
}

// Bytes per second that the host's cores read and write in memory like that of the states, doing next to nothing else.
double host_rate(const program::Program& program) {
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  const device::HostBlock memory(program.device, kElements * sizeof(float));
  ThreadPool pool(program.threads);
  auto* data = reinterpret_cast<float*>(memory.data());
  double rate = 0;
  for (int round = 0; round < 3; ++round) {
    const double seconds = seconds_of([&] {
      pool.ranges(kElements, std::int64_t{1} << 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) data[i] = 0.5F * data[i] + 1.0F;
      });
    });
    rate = std::max(rate, 2 * kElements * sizeof(float) / seconds);
  }
  return rate;
}

int bench_offload(Context& context, const OffloadArguments& a) {
  train::TrainerOptions options;
  options.write = false;
  train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
  if (given_value(context, "memory.offload") == "none")
    refuse("memory.offload = \"none\" leaves trireme bench offload nothing to measure; leave it out for \"all\"");
  if (config.memory.offload.none()) {
    config.memory.offload = "all";
    // The quickstart's ranks may update shards of their weights in place, which then cannot be offloaded.
    const bool own_plan =
        std::any_of(context.overrides.begin(), context.overrides.end(), [](const std::string& setting) {
          return setting.starts_with("parallel.") || setting.starts_with("train.micro_batch=");
        });
    if (config.builtin && !config.has_own_subject() && !own_plan) {
      config.parallel = {};
      config.train.micro_batch = 0;
    }
  }
  if (config.output.staging.automatic()) config.output.staging = "4KiB";  // nothing is saved here
  const std::filesystem::path folder = config.memory.offload_dir.empty()
                                           ? std::filesystem::current_path()
                                           : std::filesystem::path(config.memory.offload_dir);
  config.memory.offload_dir = folder.string();

  Timed alone;
  std::size_t alone_bytes = 0;
  bool fits = false;
  {
    train::Trainer trainer(plain(config), *context.registry, options);
    alone_bytes = trainer.compiled().arena_bytes();
    const device::Kind device = trainer.compiled().device();
    fits = alone_bytes < planner::memory_of(device) / (device == device::Kind::cpu ? 2 : 1);
    if (fits) alone = time_steps(trainer, a);
  }
  train::Trainer trainer(config, *context.registry, options);
  const program::Program& program = trainer.compiled().roles.front().program("step");
  const train::Compiled& c = trainer.compiled();
  const std::size_t elsewhere =
      c.roles.front().tier_bytes[program::kHostTier] + c.roles.front().tier_bytes[program::kDiskTier];
  if (elsewhere == 0) refuse("memory.offload = \"{}\" moves nothing of this model", config.memory.offload);
  const Timed moved = time_steps(trainer, a);
  const std::unique_ptr<PlainCopies> copies = PlainCopies::of(program, folder);
  const PlainCopies::Rates sequential = copies->sequential();
  const double write_rate = copies->rate(Instruction::Kind::store);
  const double read_rate = copies->rate(Instruction::Kind::load);
  const bool host = c.roles.front().tier_bytes[program::kHostTier] > 0;
  const PerPhase& compute = fits ? alone.compute : moved.compute;
  const double on_host = host_bytes(program);
  const double host_memory = on_host > 0 ? host_rate(program) : 0;
  PerPhase copy{};
  PerPhase larger{};
  double law = 0;
  nlohmann::ordered_json phases = nlohmann::ordered_json::array();
  std::string table = fmt::format("{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "phase", "compute ms", "stored",
                                  "loaded", "copy ms", "larger ms", "waited ms");
  for (std::size_t p = 0; p < kPhases.size(); ++p) {
    std::vector<double> rounds;
    rounds.reserve(3);
    for (int round = 0; round < 3; ++round) rounds.push_back(copies->seconds(p));
    copy[p] = median(rounds);
    larger[p] = std::max(compute[p], copy[p]);
    if (on_host > 0 && p == phase_of(ir::Phase::update)) larger[p] = std::max(larger[p], on_host / host_memory);
    law += larger[p];
    const double stored = copies->bytes(Instruction::Kind::store, p);
    const double loaded = copies->bytes(Instruction::Kind::load, p);
    table += fmt::format("{:<10}{:>12.1f}{:>12}{:>12}{:>12.1f}{:>12.1f}{:>12.1f}\n", kPhases[p], 1e3 * compute[p],
                         format_bytes(static_cast<std::size_t>(stored)), format_bytes(static_cast<std::size_t>(loaded)),
                         1e3 * copy[p], 1e3 * larger[p], 1e3 * moved.waited[p]);
    phases.push_back({{"phase", kPhases[p]},
                      {"compute_ms", 1e3 * compute[p]},
                      {"stored_bytes", stored},
                      {"loaded_bytes", loaded},
                      {"copy_ms", 1e3 * copy[p]},
                      {"waited_ms", 1e3 * moved.waited[p]}});
  }
  const auto tokens = static_cast<double>(config.train.batch * (trainer.config().model.context));
  if (a.json) {
    nlohmann::ordered_json o = {{"step_ms", 1e3 * moved.step},
                                {"law_ms", 1e3 * law},
                                {"ratio", moved.step / law},
                                {"compute_alone", fits},
                                {"plain_peak_bytes", alone_bytes},
                                {"peak_bytes", c.arena_bytes()},
                                {"host_bytes", c.roles.front().tier_bytes[program::kHostTier]},
                                {"disk_bytes", c.roles.front().tier_bytes[program::kDiskTier]},
                                {"tokens_per_s", tokens / moved.step},
                                {"sequential_write_gb_s", sequential.out / 1e9},
                                {"sequential_read_gb_s", sequential.in / 1e9},
                                {"write_gb_s", write_rate / 1e9},
                                {"read_gb_s", read_rate / 1e9}};
    if (fits) o["plain_step_ms"] = 1e3 * alone.step;
    if (on_host > 0) {
      o["host_update_ms"] = 1e3 * moved.host;
      o["host_update_bytes"] = on_host;
      o["host_memory_gb_s"] = host_memory / 1e9;
    }
    o["phases"] = phases;
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("memory  {} without, {} with memory.offload = \"{}\" ({}) and {} on the {}\n", format_bytes(alone_bytes),
             format_bytes(c.arena_bytes()), config.memory.offload, config.memory.offload_policy,
             format_bytes(elsewhere), host ? "host" : "disk");
  fmt::print(
      "{}    sequential {:.2f} GB/s out, {:.2f} in; the step's copies alone {:.2f} ({:.0f}%) and {:.2f} ({:.0f}%)\n",
      host ? "link" : "disk", sequential.out / 1e9, sequential.in / 1e9, write_rate / 1e9,
      100 * write_rate / sequential.out, read_rate / 1e9, 100 * read_rate / sequential.in);
  fmt::print("{}", table);
  if (on_host > 0)
    fmt::print(
        "host    {:.1f} ms of updates by {} threads: {} read and written at {:.1f} GB/s; its memory does {:.1f}\n",
        1e3 * moved.host, program.threads, format_bytes(static_cast<std::size_t>(on_host)), on_host / moved.host / 1e9,
        host_memory / 1e9);
  if (fits) fmt::print("step    {:.1f} ms without\n", 1e3 * alone.step);
  fmt::print("step    {:.1f} ms = {:.2f} × {:.1f} ms, the sum of the larger of computing{}{} copying\n",
             1e3 * moved.step, moved.step / law, 1e3 * law, fits ? "" : " (as timed while copying)",
             on_host > 0 ? ", the host's memory and" : " and");
  if (!trainer.config().data.images.empty())
    fmt::print("        {:.1f} images/s\n", static_cast<double>(config.train.batch) / moved.step);
  else
    fmt::print("        {:.0f} tokens/s\n", tokens / moved.step);
  fmt::print("loss    {:.4f} → {:.4f} in {} steps\n", moved.first_loss, moved.last_loss, a.warmup + a.steps);
  return 0;
}

}  // namespace

void add_bench_offload(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<OffloadArguments>();
  CLI::App* command = bench.add_subcommand(
      "offload", "A step with tensors on the host or on disk against its parts: computing alone, copying alone");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command->add_option("--steps", arguments->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  command->add_option("--warmup", arguments->warmup, "Steps before")->check(CLI::Range(0, 1000000));
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme bench offload --memory.offload=activations --model.layers=6 --model.width=512 --model.heads=8\n"
      "  trireme bench offload my.toml --memory.offload=all --memory.offload_dir=/mnt/fast\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return bench_offload(context, *arguments); }; });
}

}  // namespace trireme::cli
