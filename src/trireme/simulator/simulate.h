#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/compiler/compiled.h"
#include "trireme/simulator/actors.h"
#include "trireme/simulator/walk.h"

namespace trireme::simulator {

// Where the time of a step goes, of one rank; they add up to the step.
struct TimeByKind {
  double compute = 0;                // its kernels run
  double exposed_communication = 0;  // none runs, and it sends or receives
  double bubble = 0;                 // neither, in a pipeline: it waits for other stages
  double waiting = 0;                // neither: for slower ranks, for another tier, outside the program

  double total() const { return compute + exposed_communication + bubble + waiting; }
};

struct Simulation {
  Cast cast;
  Timeline timeline;
  double step_seconds = 0;
  std::vector<TimeByKind> by_actor;
  TimeByKind mean;                                          // over ranks
  double flops = 0;                                         // of all ranks, by the ops' own costs
  double model_flops = 0;                                   // of them, without what is recomputed
  double peak_flops = 0;                                    // of all devices, in the dtype of most of those operations
  std::shared_ptr<const compiler::Compiled> programs = {};  // of several steps, where the timeline is of those
  bool fits = true;                                         // every role's planned peak, in its devices' memory

  // Shares of the peak: what the model needs, and all that is computed.
  double mfu() const { return model_flops / (step_seconds * peak_flops); }
  double hfu() const { return flops / (step_seconds * peak_flops); }
};

// One step of compiled programs on a described cluster: nothing is run. The programs are those that would run; every
// constant is the cluster's. Refuses more ranks than an override names, and what is not simulated yet.
Simulation simulate(const compiler::Compiled& compiled, const cluster::Cluster& cluster);

// Read off a timeline.
std::vector<TimeByKind> time_by_kind(std::span<const Actor> actors, const Timeline& timeline, bool pipeline);

// "MFU 41.2%", and where something is recomputed "(HFU 50.3%, with what is recomputed)".
std::string utilisation_text(const Simulation& simulation);

// A line for each actor, `width` columns of time: F forward, B input gradients, W weight gradients, U update, c exposed
// communication, · idle.
std::string picture(const Simulation& simulation, int width);

// The timeline as a Chrome trace in the runtime's format: a process for each actor, a thread for each stream.
std::string trace_json(const Simulation& simulation);

}  // namespace trireme::simulator
