#pragma once
#include <vector>

#include "trireme/program/program.h"

namespace trireme::planner {

// Seconds of a CPU program's launches on this machine, by instruction (0: it is no launch): the lower
// quartile of several passes over the program (`core/undisturbed.h`). Each runs where the program has it, on its own
// bytes and after what comes before it, so that the caches hold what a step finds in them. Nothing is communicated:
// what would come from other ranks is this one's own. States start as small random numbers.
//
// With several `copies` as many threads do the same at once, each with memory of its own: what a launch takes while
// other ranks keep the other cores busy.
std::vector<double> replayed_seconds(const program::Program& program, int copies, double budget);

}  // namespace trireme::planner
