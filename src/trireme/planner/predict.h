#pragma once
#include "trireme/cost/rates.h"
#include "trireme/program/program.h"

namespace trireme::planner {

// Seconds that a program takes on a machine of round numbers (see cost/rates.h): every stream runs its instructions in
// order, waits for the events it must, and takes the time of each by its op's cost. Launch groups and capture regions
// pay for launches as they do when they run. Good for ratios between programs for the same model; nothing is run.
double nominal_seconds(const program::Program& program);
// Seconds that one instruction takes at these rates.
double nominal_seconds(const program::Instruction& instruction, const cost::Rates& rates);

}  // namespace trireme::planner
