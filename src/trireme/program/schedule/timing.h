#pragma once
#include <vector>

#include "trireme/program/schedule/schedule.h"

namespace trireme::program {

// What actions take, in any unit. A whole backward (a B without its W) takes backward + weight_gradient.
struct ActionCost {
  double forward = 1;
  double backward = 1;
  double weight_gradient = 1;
  double update = 0;
};

struct ScheduleCosts {
  std::vector<ActionCost> stages = {ActionCost{}};  // one for all stages, or one per stage; of a chunk
  double latency = 0;                               // of a message

  const ActionCost& of(std::size_t stage) const { return stages[stages.size() == 1 ? 0 : stage]; }
};

struct ScheduleTiming {
  struct Slot {
    double start = 0;
    double finish = 0;
  };
  std::vector<std::vector<Slot>> stages;  // as the actions
  double makespan = 0;
  double busy = 0;  // over all stages

  // Idle time of the whole: of makespan × stages.
  double bubble() const;
  // From its first start to its last finish, of the stage where that is longest. It is what a step takes when the next
  // one may start before all stages have completed this one.
  double longest_stage() const;
};

// Every action of a checked, synchronous or unrolled schedule starts as soon as the one before it on its stage is done
// and its message has arrived.
ScheduleTiming time_schedule(const Schedule& schedule, const ScheduleCosts& costs = {});

// How many messages of a kind a stage may have on their way, in addition to the last one, when a further action of that
// kind starts; 0: any number.
struct SendsInFlight {
  int activations = 0;
  int gradients = 0;
};

// The fewest by which no stage is held up: first of activations, then of gradients. A message is received when its
// receiver has done what comes before the action that needs it, so that fewer can make stages wait for each other for
// ever, such as where one makes all its forwards first and the next alternates. One of each for the schedules of the
// generators. Of an asynchronous schedule any number of activations, and of gradients as many as a stage makes before
// the one before it takes the first. Of a checked schedule.
SendsInFlight sends_in_flight(const Schedule& schedule);

// What a further step of an asynchronous schedule adds: its period, and the idle time in it.
struct SteadyState {
  double period = 0;
  double bubble = 0;
};
SteadyState steady_state(const Schedule& schedule, const ScheduleCosts& costs = {});

// By stage: the largest number of micro-batches (of a chunk each) that are between the start of their F and the end of
// their W, or of their whole backward. Activations are saved for these.
std::vector<int> held(const Schedule& schedule);

// By stage: the versions of the weights that are needed at once. An F reads the newest one, or in a delayed schedule
// the one that its step reads, and its backward reads the same. Synchronous: one.
std::vector<int> weight_versions(const Schedule& schedule);

}  // namespace trireme::program
