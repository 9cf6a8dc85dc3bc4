#pragma once
#include "trireme/compiler/compiled.h"
#include "trireme/program/schedule/timing.h"

namespace trireme::planner {

// What an action of each stage takes on a machine of round numbers (see cost/rates.h), one chunk and one micro-batch:
// good for ratios. One entry where there are no stages.
program::ScheduleCosts stage_costs(const compiler::Compiled& compiled);

// The role of the first rank of each stage; one where there are none.
std::vector<const compiler::Role*> stage_roles(const compiler::Compiled& compiled);

// The schedule that the stages of a run follow.
program::Schedule schedule_of(const compiler::Compiled& compiled);

}  // namespace trireme::planner
