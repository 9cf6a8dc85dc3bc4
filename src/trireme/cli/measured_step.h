#pragma once
#include <limits>
#include <string>
#include <vector>

#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

struct Measuring {
  int steps = 7;
  int warmup = 2;
  double budget = std::numeric_limits<double>::infinity();  // seconds after which no further step begins, but of three
  std::string trace = {};  // then another step is traced, by rank: "TRACE.0.json"; empty: not
};

// Seconds of each of several steps of a run on this machine, after some that warm it up. Nothing else is written.
std::vector<double> measured_steps(const train::Config& config, const train::Registry& registry,
                                   const Measuring& measuring);

}  // namespace trireme::cli
