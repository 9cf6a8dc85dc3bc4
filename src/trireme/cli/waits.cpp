#include "trireme/cli/waits.h"

#include <algorithm>
#include <array>

#include "trireme/cli/measured_step.h"
#include "trireme/cli/token_file.h"
#include "trireme/core/text.h"
#include "trireme/core/undisturbed.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {
namespace {

struct Waits {
  double alone = 1;    // time of kernels in a step, over that in a replay
  double crowded = 1;  // further, while other ranks keep the other cores busy
  double wake = 0, busy_wake = 0, link_wake = 0;
};

// A constant, and the run that shows it. Each is found with those before it.
struct WaitProbe {
  const char* settings;
  double Waits::*constant;
  double least, most;
};
constexpr std::array<WaitProbe, 5> kWaitProbes = {
    {{"parallel.mesh=dp=1", &Waits::alone, 1, 2},
     {"parallel.mesh=dp=2", &Waits::crowded, 1, 2},
     {"parallel.mesh=tp=2", &Waits::wake, 0, 1e-3},
     {"parallel.mesh=tp=2 runtime.link=1GB/s,20us", &Waits::link_wake, 0, 1e-3},
     {"parallel.mesh=pp=2,tp=2", &Waits::busy_wake, 0, 1e-3}}};

cluster::Cluster with(cluster::Cluster c, const Waits& w) {
  for (cluster::MeasuredKernel& m : c.device.measured) {
    m.seconds *= w.alone;
    m.crowded *= w.alone * w.crowded;
  }
  c.node.busy_slowdown *= w.crowded;
  c.node.wake = w.wake;
  c.node.busy_wake = w.busy_wake;
  c.node.link_wake = w.link_wake;
  return c;
}

}  // namespace

void fit_waits(cluster::Cluster& cluster, const train::Registry& registry, const planner::CalibrateOptions& options) {
  constexpr int kHalvings = 16;
  const TokenFile tokens;
  Waits waits{.wake = cluster.node.wake, .busy_wake = cluster.node.wake, .link_wake = cluster.node.wake};
  for (std::size_t i = 0; i < kWaitProbes.size(); ++i) {
    const WaitProbe& probe = kWaitProbes[i];
    if (options.on_progress) options.on_progress("what waiting costs", i, kWaitProbes.size());
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
    for (const std::string& setting : split(probe.settings, ' ')) settings.push_back(setting);
    const train::Config config = train::parse_config("", "calibration", settings, registry.models);
    const train::OnCluster on = train::compile_on(config, registry, cluster);
    planner::CalibrateOptions own = options;
    own.on_progress = {};
    own.programs.clear();
    for (const compiler::Role& role : on.compiled.roles)
      own.programs.push_back(&role.program(on.compiled.steps.back().program));
    cluster::Cluster trial = on.cluster;
    planner::measure_kernels(trial, own);
    trial.node.busy_slowdown = cluster.node.busy_slowdown;
    const double measured = undisturbed(measured_steps(config, registry, {.steps = 24, .warmup = 3}));
    const double before = waits.*probe.constant;
    double low = probe.least, high = probe.most;
    for (int k = 0; k < kHalvings; ++k) {
      Waits w = waits;
      w.*probe.constant = (low + high) / 2;
      const bool shorter = simulator::simulate(on.compiled, with(trial, w)).step_seconds < measured;
      (shorter ? low : high) = w.*probe.constant;
    }
    // Where the most of it is not enough, it is not what made the step longer.
    waits.*probe.constant = high < probe.most ? low : before;
  }
  cluster = with(std::move(cluster), waits);
}

}  // namespace trireme::cli
