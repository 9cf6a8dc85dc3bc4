#include <algorithm>
#include <filesystem>
#include <string_view>

#include "trireme/cli/bench.h"
#include "trireme/cli/calibration.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/measured_step.h"
#include "trireme/cli/output.h"
#include "trireme/cli/waits.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"
#include "trireme/train/run_folder.h"

namespace trireme::cli {
namespace {

struct CalibrateArguments {
  std::vector<std::string> configs = {"quickstart"};
  std::string out;
  std::string device = "auto";
};

// A device without figures, to compile for: what a kernel takes is found out afterwards.
cluster::Cluster bare(const std::string& kind, std::int64_t cores) {
  cluster::Cluster c;
  c.name = "this machine";
  c.device.kind = kind;
  c.node = {.devices = 64, .cores = cores};
  c.software["flash"] = {};
  return c;
}

// A step of little but launches: what is left of it when its kernels are taken away, by instruction.
double launch_overhead(cluster::Cluster cluster, const train::Registry& registry,
                       const planner::CalibrateOptions& options) {
  constexpr const char* kTiny =
      "[model]\nfamily = \"mlp\"\nlayers = 12\nwidth = 16\nimage = 4\n[data]\nimages = \"synthetic\"\n"
      "[train]\nbatch = 4\n[parallel]\nmesh = \"dp=1\"\n[runtime]\nthreads = 1\n";
  const train::Config config = train::parse_config(kTiny, "calibration", {}, registry.models);
  const train::OnCluster on = train::compile_on(config, registry, cluster);
  planner::CalibrateOptions own = options;
  own.programs = {&on.compiled.roles.front().program("step")};
  planner::measure_kernels(cluster, own);
  cluster.device.launch = 0;
  const double kernels = simulator::simulate(on.compiled, cluster).timeline.seconds;
  const std::vector<double> steps = measured_steps(on.config, registry, {.steps = 50, .warmup = 10});
  const double left = median(steps) - kernels;
  return std::max(0.0, left / static_cast<double>(own.programs.front()->instructions.size()));
}

}  // namespace

cluster::Cluster calibrated(const std::vector<train::Config>& configs, const train::Registry& registry,
                            device::Kind device, WorkProgress& progress, Calibration how, double limit) {
  planner::CalibrateOptions options;
  options.products = how == Calibration::whole;
  if (how == Calibration::quick) options.limit = limit;
  options.device = device;
  options.on_progress = [&](const std::string& what, std::size_t done, std::size_t total) {
    progress.count("measuring " + what, done, total);
  };
  cluster::Cluster cluster = planner::calibrate(options);
  const bool cpu = device == device::Kind::cpu;
  std::vector<train::OnCluster> compiled;
  for (const train::Config& config : configs) {
    try {
      compiled.push_back(train::compile_on(config, registry, bare(cluster.device.kind, cluster.node.cores)));
    } catch (const Error&) {
      if (compiled.empty()) throw;
    }
  }
  for (const train::OnCluster& on : compiled)
    for (const compiler::Role& role : on.compiled.roles)
      if (const program::Program* p = role.find(on.compiled.steps.back().program)) options.programs.push_back(p);
  planner::measure_kernels(cluster, options);
  if (cpu) cluster.device.launch = launch_overhead(cluster, registry, options);
  if (cpu && cluster.node.cores > 1) fit_waits(cluster, registry, options);
  return cluster;
}

std::vector<train::Config> with_usual_plans(const train::Config& asked, const train::Registry& registry, int ranks) {
  constexpr int kMaxTp = 4;
  train::Config config = asked;
  train::resolve_shape(config, registry, {});
  std::vector<train::Config> all;
  const auto add = [&](int dp, int tp, std::int64_t rows) {
    train::Config one = config;
    one.parallel = {};
    one.parallel.sharding = config.parallel.sharding;
    one.memory = {};
    train::apply_setting(one, fmt::format("parallel.mesh=dp={},tp={}", dp, tp), registry.models);
    one.train.micro_batch = rows;
    one.train.batch = std::min(config.train.batch, 2 * rows * dp);  // gradients are written, and then added to
    if (one.train.batch % (rows * dp) == 0) all.push_back(one);
  };
  // What lies between is interpolated, so the outer ones are first: there may not be the time for all.
  for (const std::int64_t rows : {8, 1, 4, 2})
    for (const int here : ranks > 1 ? std::vector{ranks, 1} : std::vector{1})
      for (int tp = 1; tp <= std::min(here, kMaxTp); tp *= 2)
        if (here % tp == 0 && rows * (here / tp) <= config.train.batch) add(here / tp, tp, rows);
  return all;
}

namespace {

constexpr std::string_view kBeginning = "# This machine, as `trireme calibrate` measured it.";

std::string calibration_text(const cluster::Cluster& cluster) {
  return fmt::format("{} Use it with `trireme simulate CONFIG --cluster FILE`.\n{}", kBeginning,
                     cluster::to_toml(cluster));
}

// Before the measurements: a calibration takes the place of another one, and of nothing else.
void check_place_of_calibration(const std::string& out) {
  if (out.empty() || out == "-") return;
  check_replaceable(out, kBeginning, "calibration by trireme", "--out " + out);
  train::check_place(out, "--out " + out);
}

}  // namespace

void keep_calibration(const cluster::Cluster& cluster, const std::string& file) {
  if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder);
  write_file_atomically(file, calibration_text(cluster));
}

namespace {

int calibrate(const Context& context, const CalibrateArguments& a) {
  const device::Kind device = device_named(a.device);
  check_place_of_calibration(a.out);
  const std::string out = a.out.empty() ? train::own_cluster_file() : a.out;
  std::vector<train::Config> configs;
  for (const std::string& source : a.configs) {
    const train::Config config = train::load_config(source, context.overrides, context.registry->models);
    configs.push_back(config);
    if (device != device::Kind::cpu) continue;
    const std::vector<train::Config> more = with_usual_plans(config, *context.registry, 2);
    configs.insert(configs.end(), more.begin(), more.end());
  }
  WorkProgress progress;
  const cluster::Cluster cluster = calibrated(configs, *context.registry, device, progress);
  const double seconds = progress.seconds();
  progress.finish();
  if (out == "-") {
    say(stdout, calibration_text(cluster));
    return 0;
  }
  keep_calibration(cluster, out);
  say(stdout, "{}  launch   {:.2f} us, {} kernels and {} collectives measured in {:.0f} s\nwritten to {}\n",
      cluster::summary(cluster), 1e6 * cluster.device.launch, cluster.device.measured.size(),
      cluster.inside.measured.size(), seconds, out);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CalibrateArguments>();
  CLI::App* command = app.add_subcommand("calibrate", "Measure this machine as a cluster description");
  command->add_option("configs", arguments->configs, "Configurations whose kernels are measured");
  command->add_option("--out", arguments->out,
                      "File to write; - prints it; by default where simulate looks for this machine");
  command->add_option("--device", arguments->device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->footer(
      "\nExamples:\n"
      "  trireme calibrate                                    then: trireme simulate my.toml\n"
      "  trireme calibrate my.toml other.toml --out here.toml\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return calibrate(context, *arguments); }; });
}

}  // namespace trireme::cli
