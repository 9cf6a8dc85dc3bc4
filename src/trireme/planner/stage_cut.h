#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::planner {

// Whether the pieces [first, last) of a model can be that part of it, with all that the schedule holds there.
using FitsPart = std::function<bool(std::size_t part, std::size_t first, std::size_t last)>;

// Cuts the pieces of a model, layers or smaller ones, in parts for a pipeline: by dynamic programming, the cut whose
// largest part takes the least time among those whose parts all fit (without `fits`: all do). `seconds` are the
// pieces'. Every part has at least one.
//
//   balanced_parts({1, 1, 1, 3}, 2) = {3, 1}
//
// Gives the number of pieces of each part; empty: nothing fits. Among equals the last parts are the longest: a
// pipeline's first stages hold the most.
std::vector<std::int64_t> balanced_parts(const std::vector<double>& seconds, int parts, const FitsPart& fits = {});

}  // namespace trireme::planner
