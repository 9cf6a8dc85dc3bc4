#pragma once
#include <vector>

#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// Seconds of each of `steps` steps of a run on this machine, after `warmup` others. Nothing is written.
std::vector<double> measured_steps(const train::Config& config, const train::Registry& registry, int steps,
                                   int warmup = 2);

}  // namespace trireme::cli
