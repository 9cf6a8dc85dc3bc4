#include "trireme/cli/waits.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/cli/measured_step.h"
#include "trireme/core/text.h"
#include "trireme/core/undisturbed.h"
#include "trireme/simulator/simulate.h"

namespace trireme::cli {
namespace {

struct Constants {
  double alone = 1;    // time of kernels in a step, over that in a replay
  double crowded = 1;  // further, while other ranks keep the other cores busy
  double shared = 1;   // further, where more ranks compute than there are cores
  double wake = 0, busy_wake = 0, link_wake = 0;
};

// A constant, and the mesh whose runs show it. Each is found with those before it.
struct WaitProbe {
  const char* settings;
  double Constants::*constant;
  double least, most;
};
constexpr std::array<WaitProbe, 6> kWaitProbes = {
    {{"parallel.mesh=dp=1", &Constants::alone, 1, 2},
     {"parallel.mesh=dp=2", &Constants::crowded, 1, 2},
     {"parallel.mesh=dp=4", &Constants::shared, 1, 2},
     {"parallel.mesh=tp=2", &Constants::wake, 0, 1e-3},
     {"parallel.mesh=tp=2 runtime.link=1GB/s,20us", &Constants::link_wake, 0, 1e-3},
     {"parallel.mesh=pp=2,tp=2", &Constants::busy_wake, 0, 1e-3}}};

// Of different sizes, because caches are.
constexpr std::array<const char*, 2> kModels = {
    {"model.family=gpt2 model.width=96 model.context=64 train.micro_batch=2",
     "model.family=llama model.width=192 model.context=96 train.micro_batch=4"}};

cluster::Cluster with(cluster::Cluster c, const Constants& w) {
  for (cluster::MeasuredKernel& m : c.device.measured) {
    m.seconds *= w.alone;
    m.crowded *= w.alone * w.crowded;
  }
  c.node.busy_slowdown *= w.crowded;
  c.node.shared_slowdown = w.shared;
  c.node.wake = w.wake;
  c.node.busy_wake = w.busy_wake;
  c.node.link_wake = w.link_wake;
  return c;
}

}  // namespace

Waits::Waits(const cluster::Cluster& cluster, const train::Registry& registry, const planner::CalibrateOptions& options)
    : cluster_(cluster), registry_(registry), options_(options) {
  for (std::size_t i = 0; i < kWaitProbes.size(); ++i)
    for (const char* model : kModels) {
      if (options_.on_progress) options_.on_progress("kernels of what shows waiting", i, kWaitProbes.size());
      std::vector<std::string> settings = {"model.layers=4",
                                           "model.heads=4",
                                           "model.vocab=256",
                                           "train.batch=16",
                                           "runtime.device=cpu",
                                           "runtime.threads=1",
                                           "data.tokens=" + tokens_.path()};
      for (const char* more : {model, kWaitProbes[i].settings})
        for (const std::string& setting : split(more, ' ')) settings.push_back(setting);
      const train::Config config = train::parse_config("", "calibration", settings, registry.models);
      Probe probe{i, config, train::compile_on(config, registry, cluster), {}, {}};
      planner::CalibrateOptions own = options;
      own.on_progress = {};
      own.programs.clear();
      for (const compiler::Role& role : probe.on.compiled.roles)
        own.programs.push_back(&role.program(probe.on.compiled.steps.back().program));
      probe.kernels = probe.on.cluster;
      planner::measure_kernels(probe.kernels, own);
      probe.kernels.node.busy_slowdown = cluster.node.busy_slowdown;
      probes_.push_back(std::move(probe));
    }
}

void Waits::measure() {
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (options_.on_progress) options_.on_progress("what waiting costs", i, probes_.size());
    const std::vector<double> steps = measured_steps(probes_[i].config, registry_, {.steps = 8, .warmup = 2});
    probes_[i].steps.insert(probes_[i].steps.end(), steps.begin(), steps.end());
  }
}

cluster::Cluster Waits::fitted() const {
  constexpr int kHalvings = 16;
  const double wake = cluster_.node.wake;
  Constants found{.wake = wake, .busy_wake = wake, .link_wake = wake};
  for (std::size_t i = 0; i < kWaitProbes.size(); ++i) {
    const WaitProbe& show = kWaitProbes[i];
    const auto too_short = [&](const Constants& trial) {
      double sum = 0;
      for (const Probe& probe : probes_)
        if (probe.constant == i)
          sum += std::log(simulator::simulate(probe.on.compiled, with(probe.kernels, trial)).step_seconds /
                          undisturbed(probe.steps));
      return sum < 0;
    };
    double low = show.least, high = show.most;
    for (int k = 0; k < kHalvings; ++k) {
      Constants trial = found;
      trial.*show.constant = (low + high) / 2;
      (too_short(trial) ? low : high) = trial.*show.constant;
    }
    // Where the most of it is not enough, it is not what made the steps longer.
    if (high < show.most) found.*show.constant = low;
  }
  return with(cluster_, found);
}

}  // namespace trireme::cli
