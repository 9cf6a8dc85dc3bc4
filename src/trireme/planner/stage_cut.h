#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::planner {

// Cuts the layers of a model in parts for a pipeline: by dynamic programming, the cut whose largest part takes the
// least time among those whose parts all fit. `seconds` are the layers'; `fits(part, first, last)` says whether the
// layers [first, last) can be that part, with all that the schedule holds there. Every part has at least one layer.
//
//   cut_layers({1, 1, 1, 3}, 2, …) = {3, 1}
//
// Gives the layers of each part; empty: nothing fits. Among equals the first parts are the longest.
std::vector<std::int64_t> cut_layers(
    const std::vector<double>& seconds, int parts,
    const std::function<bool(std::size_t part, std::size_t first, std::size_t last)>& fits);

}  // namespace trireme::planner
