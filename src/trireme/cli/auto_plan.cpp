#include "trireme/cli/auto_plan.h"

#include <filesystem>
#include <thread>

#include "trireme/cli/calibration.h"
#include "trireme/cli/output.h"
#include "trireme/cli/plan_report.h"
#include "trireme/cli/preparation.h"
#include "trireme/core/error.h"
#include "trireme/train/plan_search.h"

namespace trireme::cli {
namespace {

// Its kernels in the usual plans, for a machine that was never calibrated.
cluster::Cluster measured_here(const Context& context, const train::Config& config, WorkProgress& progress) {
  const std::string file = train::own_cluster_file();
  const device::Kind device = train::device_of(config);
  std::vector<train::Config> plans;
  if (device == device::Kind::cpu) {
    plans = with_usual_plans(config, *context.registry, static_cast<int>(std::thread::hardware_concurrency()));
  } else {
    train::Config one = config;
    one.parallel = {};
    one.parallel.mesh = "dp=1";
    one.train.micro_batch = 0;
    one.memory = {};
    plans.push_back(one);
  }
  constexpr double kSeconds = 6;
  const cluster::Cluster cluster = calibrated(plans, *context.registry, device, progress, Calibration::quick, kSeconds);
  keep_calibration(cluster, file);
  log_to_stderr(
      LogLevel::info,
      fmt::format("this machine was measured quickly and is kept in {}; `trireme calibrate` does it well", file));
  return cluster;
}

}  // namespace

train::Config planned_here(const Context& context, train::Config config, int launched, bool dry_run) {
  config.parallel.plan = train::Planning::none;
  WorkProgress progress("left in this phase");
  train::PlanRequest request;
  const std::string file = train::own_cluster_file();
  if (std::filesystem::exists(file)) {
    request.cluster = cluster::load_cluster(file);
  } else {
    if (launched > 1)
      refuse(
          "parallel.plan = \"auto\" plans with this machine's calibration, and {} is not there; `trireme calibrate` "
          "makes it, before the ranks are launched",
          file);
    request.cluster = measured_here(context, config, progress);
  }
  request.ranks = launched > 1 ? launched : train::usual_ranks(request.cluster);
  request.fewer_ranks = launched <= 1;
  request.fixed.assign(config.given.begin(), config.given.end());
  request.log = log_to_stderr;
  request.search.on_progress = [&](const std::string& phase, std::size_t done, std::size_t total,
                                   const planner::Scored*) { progress.count("planning: " + phase, done, total); };
  const train::PlanSearch search(config, *context.registry, request);
  planner::SearchResult result;
  try {
    result = search.run();
  } catch (const Error& e) {
    if (!dry_run) throw;
    progress.finish();
    log_to_stderr(LogLevel::warning, e.message());
    return config;
  }
  progress.finish();
  const planner::Scored& best = result.best.front();
  say(stdout, "planned {}: {} a step, the best of {} plans\n", planner::describe(best.candidate),
      seconds_text(best.seconds), result.candidates);
  for (const std::string& setting : train::settings_of(best.candidate))
    train::apply_setting(config, setting, context.registry->models);
  config.parallel.sharding = search.under(best.candidate).parallel.sharding;
  return config;
}

}  // namespace trireme::cli
