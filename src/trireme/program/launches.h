#pragma once
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// Seconds that pass around kernels, whatever they compute.
struct LaunchCosts {
  double launch = 0;        // around each that is launched by itself
  double graph_launch = 0;  // around a replay of a capture region
  double graph_kernel = 0;  // around each kernel of a replay
};

// By instruction: the seconds that it saves, against a launch of its own, because a launch group or a capture region
// has it. A group pays for one launch; a replay pays `graph_launch`, with its first kernel, and `graph_kernel` with
// each.
//
//   7  adamw                             58  linear   launch - graph_launch - graph_kernel
//   8  adamw   launch: goes with 7       59  gelu     launch - graph_kernel
std::vector<double> launch_savings(const Program& program, const LaunchCosts& costs);

}  // namespace trireme::program
