#pragma once
#include <cstddef>
#include <string>
#include <unordered_map>

#include "trireme/program/program.h"

namespace trireme::planner {

// Where a program's memory peaks depends on how many layers it has: at the end of the forward phase, say, with the
// activations of all of them, or at the end of the backward phase, with the gradients. What is live at any one place
// grows by the same with every layer, so from two short models the places are extended, and not the peak.
struct LivePlaces {
  // By instruction, where its layer is said by its distance from the first or the last: the most bytes that are live.
  std::unordered_map<std::string, double> bytes;
  double padding = 0;  // bytes that the arena has more than the most that are live
};

LivePlaces live_places(const program::Program& program);

// The arena of a program with `further` times as many layers more as `two` has more than `one`.
double extended_arena(const LivePlaces& one, const LivePlaces& two, double further);

}  // namespace trireme::planner
