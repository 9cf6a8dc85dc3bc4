#pragma once
#include <optional>
#include <string>
#include <vector>

#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"
#include "trireme/program/lower.h"

namespace trireme::compiler {

// What a stage of an asynchronous pipeline does. Between two steps it has micro-batches in flight, whose backwards are
// part of the next step's program, or of the one that drains the pipeline.
//
//   fill    F0 F1 F2 B0 U F3 B1 U              the first step; 2 micro-batches stay in flight
//   step    F0 B2 U F1 B3 U F2 B0 U F3 B1 U    every later one
//   drain   B2 U B3 U
//
// Micro-batch n since the filling step saves what its backward reads in slot n mod `slots`, and its version of the
// weights in slot n mod `versions`: programs differ by the slots, and come again after `period` steps. `ahead` + 1
// slots and `ahead` versions are enough. A stage has more of them where the programs become fewer by it (choose_slots).
struct AsyncStage {
  enum class Part { fill, step, drain };

  int micro_batches = 1;
  int ahead = 0;         // micro-batches in flight between two steps
  bool delayed = false;  // PipeDream-2BW: one update per step, whose result is read from the next step but one on
  int slots = 1;
  int versions = 0;  // one if `delayed`
  std::vector<program::Action> fill = {};
  std::vector<program::Action> step = {};
  std::vector<program::Action> drain = {};

  // After how many steps the slots are the same again.
  int period() const;
  // Sets `slots` and `versions` for `ahead`: as many as it needs where few programs take turns by them, or small ones;
  // else up to a quarter more, the fewest by which the programs are few, or are the fewest.
  void choose_slots();
  // The runs of graphs (passes/in_flight.h) that a program is made of. `steps`: since the pipeline was empty. `update`:
  // the graph that updates.
  std::vector<program::GraphCall> calls(const ir::Module& module, Part part, int steps,
                                        const std::string& update = "update") const;
  // Whether gradients of the step before are summed already when the program starts.
  bool sums_begun(Part part) const { return delayed && ahead > 0 && part != Part::fill; }
};

// Nothing where the plan is no asynchronous pipeline's that trains. Refuses what does not go with one.
std::optional<AsyncStage> async_stage(const Graphs& graphs, const Plan& plan, int stage);

// The programs of the first steps, where they update in another way, begin so: "warm_fill", "warm_step.1", … The
// pipeline is drained before the others take over, so that no program has updates of both kinds.
inline constexpr const char* kWarmPrograms = "warm_";

// The program's name: "step", "step.1", …
std::string slot_program(const std::string& part, std::int64_t steps, int period);

}  // namespace trireme::compiler
