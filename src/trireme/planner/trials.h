#pragma once
#include <functional>
#include <string>
#include <vector>

#include "trireme/compiler/compile.h"

namespace trireme::planner {

// What a step would take under a plan: compiled, and nothing run.
struct Tried {
  std::size_t peak = 0;  // bytes, of the fullest of the roles that take rows
  double seconds = 0;    // of the longest one's step, predicted (predict.h)
  std::string refused;   // why there is none; the rest is then empty
  bool tried = true;     // false: it was left out
};
Tried tried(const compiler::Compiled& compiled);

struct Settled {
  compiler::Graphs graphs;
  compiler::Plan plan;
};
struct TrialOptions {
  int threads = 1;                                                       // that compile concurrently
  std::size_t first = 0;                                                 // those before it are left out
  std::function<void(std::size_t done, std::size_t total)> on_one = {};  // as one is about to begin; one call at a time
};
// Compiles `count` plans, the last one first. `settle` gives them by number, called by several threads; what it or the
// compiler refuses is the trial's result.
std::vector<Tried> try_plans(std::size_t count, const std::function<Settled(std::size_t)>& settle,
                             const TrialOptions& options = {});

}  // namespace trireme::planner
