#include "trireme/simulator/asynchronous.h"

#include <algorithm>

#include "trireme/compiler/async_stage.h"
#include "trireme/program/concatenate.h"

namespace trireme::simulator {
namespace {

using compiler::Compiled;
using compiler::Role;

constexpr const char* kSeveral = "several steps";

// As many steps after the one that fills, and what drains.
Simulation walked(const Compiled& compiled, const cluster::Cluster& cluster, int steps) {
  auto together = std::make_shared<Compiled>(compiled);
  for (Role& role : together->roles) {
    const int period = role.in_flight->period;
    std::vector<const program::Program*> all = {&role.program("fill")};
    for (int s = 1; s <= steps; ++s) all.push_back(&role.program(compiler::slot_program("step", s, period)));
    if (const auto* drain = role.find(compiler::slot_program("drain", steps + 1, period))) all.push_back(drain);
    program::Program one = program::concatenated(all);
    one.name = kSeveral;
    one.threads = all.front()->threads;
    role.programs.push_back(std::move(one));
    role.in_flight.reset();
  }
  together->steps = {{kSeveral, 0}};
  Simulation s = simulate(*together, cluster);
  s.programs = together;  // which the timeline names
  return s;
}

TimeByKind added(const TimeByKind& longer, const TimeByKind& shorter, double steps) {
  return {(longer.compute - shorter.compute) / steps,
          (longer.exposed_communication - shorter.exposed_communication) / steps,
          (longer.bubble - shorter.bubble) / steps, (longer.waiting - shorter.waiting) / steps};
}

}  // namespace

Simulation simulate_asynchronous(const Compiled& compiled, const cluster::Cluster& cluster) {
  int period = 1;
  for (const Role& role : compiled.roles) period = std::max(period, role.in_flight->period);
  // Long enough that the stages work at their own pace.
  const int few = std::max(period, 4);
  const int many = 2 * few;
  const Simulation shorter = walked(compiled, cluster, few);
  Simulation s = walked(compiled, cluster, many);
  const double steps = many - few;
  s.step_seconds = (s.timeline.seconds - shorter.timeline.seconds) / steps + cluster.step;
  s.flops = (s.flops - shorter.flops) / steps;
  s.model_flops = (s.model_flops - shorter.model_flops) / steps;
  for (std::size_t a = 0; a < s.by_actor.size(); ++a) {
    s.by_actor[a] = added(s.by_actor[a], shorter.by_actor[a], steps);
    s.by_actor[a].waiting += cluster.step;
  }
  s.mean = added(s.mean, shorter.mean, steps);
  s.mean.waiting += cluster.step;
  return s;
}

}  // namespace trireme::simulator
