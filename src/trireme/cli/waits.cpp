#include "trireme/cli/waits.h"

#include <functional>

#include "trireme/cli/bench.h"
#include "trireme/cli/measured_step.h"
#include "trireme/cli/token_file.h"
#include "trireme/core/text.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {
namespace {

// A constant of a cluster, and the run that shows it.
struct Shown {
  const char* settings;
  std::function<void(cluster::Cluster&, double)> set;
};

std::vector<Shown> shown() {
  return {{"parallel.mesh=tp=2", [](cluster::Cluster& c, double s) { c.node.wake = s; }},
          {"parallel.mesh=dp=2 parallel.zero=3", [](cluster::Cluster& c, double s) { c.node.busy_wake = s; }},
          {"parallel.mesh=dp=2,tp=2", [](cluster::Cluster& c, double s) { c.node.crowd_wake = s; }}};
}

}  // namespace

void fit_waits(cluster::Cluster& cluster, const train::Registry& registry, const planner::CalibrateOptions& options) {
  constexpr double kMost = 3e-3;  // of waking a thread
  constexpr int kHalvings = 20;
  const TokenFile tokens;
  const std::vector<Shown> all = shown();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (options.on_progress) options.on_progress("what waiting costs", i, all.size());
    std::vector<std::string> settings = {"model.family=gpt2",
                                         "model.layers=4",
                                         "model.heads=4",
                                         "model.vocab=256",
                                         "model.width=128",
                                         "model.context=64",
                                         "train.batch=16",
                                         "train.micro_batch=2",
                                         "runtime.device=cpu",
                                         "runtime.threads=1",
                                         "data.tokens=" + tokens.path()};
    for (const std::string& setting : split(all[i].settings, ' ')) settings.push_back(setting);
    const train::Config config = train::parse_config("", "calibration", settings, registry.models);
    const train::OnCluster on = train::compile_on(config, registry, cluster);
    planner::CalibrateOptions own = options;
    own.on_progress = {};
    own.programs.clear();
    for (const compiler::Role& role : on.compiled.roles)
      own.programs.push_back(&role.program(on.compiled.steps.back().program));
    cluster::Cluster trial = cluster;
    planner::measure_kernels(trial, own);
    const double measured = median(measured_steps(config, registry, {.steps = 15, .warmup = 3}));
    double low = 0, high = kMost;
    for (int k = 0; k < kHalvings; ++k) {
      const double middle = (low + high) / 2;
      cluster::Cluster with = trial;
      all[i].set(with, middle);
      (simulator::simulate(on.compiled, with).step_seconds < measured ? low : high) = middle;
    }
    all[i].set(cluster, low);
  }
}

}  // namespace trireme::cli
