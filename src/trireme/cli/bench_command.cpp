#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>

#include "trireme/cli/bench.h"
#include "trireme/cli/floors.h"
#include "trireme/cli/report.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/planner/machine.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

struct BenchArguments {
  std::string config = "quickstart";
  int steps = 10;
  int warmup = 2;
  bool json = false;
  bool by_op = false;
  std::string plan;
};

int bench_step(Context& context, const BenchArguments& a) {
  const std::uint64_t before = planner::resident_peak();  // program and libraries
  train::TrainerOptions options;
  options.write = false;
  train::Followed followed = train::load_followed(a.plan, a.config, context.overrides, context.registry->models);
  options.plan = std::move(followed.plan);
  train::Config config = std::move(followed.config);
  // The time of each alone.
  if (a.by_op && !config.runtime.overlap_wgrad) config.runtime.overlap_wgrad = false;
  train::Trainer trainer(config, *context.registry, options);
  trainer.start();
  const train::Config& c = trainer.config();
  runtime::Trace trace(a.by_op ? 4'000'000 : 0);
  data::Loader loader = trainer.batches();
  std::vector<double> milliseconds;
  std::vector<double> forward;
  for (int i = 0; i < a.warmup + a.steps; ++i) {
    const data::Batch& batch = loader.next();
    // Reading data is no part of the step.
    if (loader.wait()) trainer.session().expect(*loader.following());
    if (i == a.warmup && a.by_op) trainer.session().step_executor().set_trace(&trace);
    const auto begin = std::chrono::steady_clock::now();
    const train::StepResult result = trainer.session().step(batch, i, train::learning_rate(c.train, i), c.train.seed);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (!result.finite && !result.skipped()) fail("step {} of the benchmark is not finite", i + 1);
    if (i < a.warmup) continue;
    milliseconds.push_back(ms);
    forward.push_back(1e3 * trainer.session().step_executor().phase_seconds()[0]);
  }
  const double step_ms = median(milliseconds);
  const double tokens = static_cast<double>(c.train.batch * trainer.data().train->tokens_per_sample());
  const std::string unit = trainer.model().images ? "images" : "tokens";
  // The system's figure, or the driver's.
  const bool on_cpu = trainer.compiled().device() == device::Kind::cpu;
  const std::uint64_t measured = on_cpu ? planner::resident_peak() - before : device::cuda::used_memory();
  if (a.json) {
    const auto fastest = [](const std::vector<double>& ms) { return *std::min_element(ms.begin(), ms.end()); };
    nlohmann::ordered_json o = {{"step_ms", step_ms},
                                {"fastest_ms", fastest(milliseconds)},
                                {"forward_ms", median(forward)},
                                {"fastest_forward_ms", fastest(forward)},
                                {"tokens_per_s", tokens / step_ms * 1e3},
                                {"flops_per_step", trainer.flops_per_step()},
                                {"peak_bytes", trainer.compiled().arena_bytes()},
                                {"measured_peak_bytes", measured},
                                {"resident_peak_bytes", planner::resident_peak()},
                                {"steps", a.steps}};
    if (trainer.model().images) o["images_per_s"] = o["tokens_per_s"];
    if (!on_cpu) o["predicted_gpu_bytes"] = gpu_bound(trainer);
    fmt::print("{}\n", o.dump());
    return 0;
  }
  const double peak = train::product_speed(c, trainer.compiled(), trainer.threads());
  const double flops = trainer.flops_per_step() / step_ms * 1e3;
  fmt::print("step    {:.1f} ms median of {} ({:.1f} … {:.1f})\n", step_ms, a.steps,
             *std::min_element(milliseconds.begin(), milliseconds.end()),
             *std::max_element(milliseconds.begin(), milliseconds.end()));
  fmt::print("speed   {} {}/s, {:.0f} GFLOP/s of {:.0f} that a large matmul reaches here ({:.0f}%{})\n",
             format_rate(tokens / step_ms * 1e3), unit, flops / 1e9, peak / 1e9, 100 * flops / peak,
             flops > peak ? ": other programs used the cores while that was measured" : "");
  fmt::print("memory  {} B planned for each rank; {} B measured, {} ({}{})\n",
             format_count(trainer.compiled().arena_bytes()), format_count(measured),
             on_cpu ? "by which the process has grown" : "of the GPU", planner::whole_use(trainer.compiled().device()),
             on_cpu ? "" : fmt::format("; at most {} B predicted", format_count(gpu_bound(trainer))));
  if (a.by_op) fmt::print("\n{}", trace.by_kind(a.steps));
  if (a.by_op && trainer.compiled().device() != device::Kind::cpu)
    fmt::print("\n{}", floors(trainer.compiled().roles.front().program("step"), peak,
                              planner::copy_speed(trainer.compiled().device())));
  return 0;
}

}  // namespace

std::string given_value(const Context& context, std::string_view key) {
  std::string value;
  for (const std::string& setting : context.overrides)
    if (setting.size() > key.size() && setting.starts_with(key) && setting[key.size()] == '=')
      value = setting.substr(key.size() + 1);
  return value;
}

void refuse_keys(const Context& context, std::string_view name, std::span<const std::string_view> keys,
                 std::string_view why) {
  for (const std::string_view key : keys)
    if (const std::string value = given_value(context, key); !value.empty())
      refuse("{} = {} has no effect on trireme bench {}: {}; leave it out", key, value, name, why);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

device::Kind device_named(const std::string& name) {
  if (name == "cpu") return device::Kind::cpu;
  const bool found = !device::cuda::gpus().empty();
  if (name == "cuda" && !found) refuse("--device=cuda: no CUDA device found");
  return found ? device::Kind::cuda : device::Kind::cpu;
}

void add_bench(CLI::App& app, Context& context) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmarks");
  bench->require_subcommand(1);
  bench->footer("\nExamples:\n  trireme bench step my.toml --by-op\n  trireme bench checkpoint my.toml\n");
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* step = bench->add_subcommand("step", "Time one training step");
  step->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  step->add_option("--steps", arguments->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  step->add_option("--warmup", arguments->warmup, "Steps before")->check(CLI::Range(0, 1000000));
  step->add_flag("--json", arguments->json, "For scripts");
  step->add_option("--plan", arguments->plan, "A plan to follow, as of train --plan");
  step->add_flag("--by-op", arguments->by_op, "Time by kind of instruction, each alone");
  step->footer(
      "\nExamples:\n"
      "  trireme bench step\n"
      "  trireme bench step --model.layers=6 --model.width=384 --model.heads=6 --model.context=256 --train.batch=16 "
      "--by-op\n");
  step->callback(
      [&context, arguments] { context.run = [&context, arguments] { return bench_step(context, *arguments); }; });
  add_bench_attention(*bench, context);
  add_bench_checkpoint(*bench, context);
  add_bench_comm(*bench, context);
  add_bench_gemm(*bench, context);
  add_bench_generate(*bench, context);
  add_bench_offload(*bench, context);
  add_bench_overlap(*bench, context);
  add_bench_plans(*bench, context);
  add_bench_reduce(*bench, context);
  add_bench_scaling(*bench, context);
}

}  // namespace trireme::cli
