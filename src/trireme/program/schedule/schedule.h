#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trireme/program/schedule/action.h"

namespace trireme::program {

using StageActions = std::vector<std::vector<Action>>;  // one list per stage

// The order in which the stages of a pipeline work. With V chunks, stage i of p runs the parts i, p + i, 2p + i, … of
// the model: chunk v of the last stage is followed by chunk v + 1 of stage 0.
//
// A synchronous schedule is one step, which ends in the update. An asynchronous one never empties between steps: the
// first step is `fill`, every later one `stages`, and `drain` completes what is in flight. There a B or W belongs to
// the latest F with its numbers, which may be of the step before, and there are several updates or a delayed one.
//
//   fill     F0 F1 F2 B0 U F3 B1 U       4 micro-batches; 2 are in flight afterwards
//   steady   F0 B2 U F1 B3 U F2 B0 U F3 B1 U
//   drain    B2 U B3 U
struct Schedule {
  int micro_batches = 1;  // of a step
  int chunks = 1;         // V
  StageActions stages;
  StageActions fill = {};   // empty: synchronous
  StageActions drain = {};  // of as many stages as `fill`
  bool delayed = false;     // asynchronous: a step reads the weights of one update before the newest (PipeDream-2BW)

  int stage_count() const { return static_cast<int>(stages.size()); }
  bool asynchronous() const { return !fill.empty(); }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The lines of a schedule's text.
struct ScheduleLines {
  std::vector<int> stages, fill, drain;  // by stage, from 1; empty: the schedule was not read from text
};

// One line per stage. The parts of an asynchronous schedule follow the lines "fill", "steady" (or "steady delayed") and
// "drain"; a stage with nothing to do there is "-".
std::string to_text(const Schedule& schedule);

// Reads the same. The numbers of micro-batches and chunks are the largest that occur. `#` starts a comment, and blank
// lines are ignored. Refuses, by line and token, what is no action; whether the order is a valid one, check_schedule()
// says.
Schedule parse_schedule(std::string_view text, ScheduleLines* lines = nullptr);

// The steps of an asynchronous schedule as one list per stage: fill, `steps` - 1 times steady, drain. Micro-batch k of
// step s has the number s × micro_batches + k. Of a synchronous schedule: itself.
Schedule unrolled(const Schedule& schedule, int steps);

}  // namespace trireme::program
