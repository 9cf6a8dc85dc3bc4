#pragma once
#include <string>
#include <vector>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// Seconds of a step as they are undisturbed (core/undisturbed.h), of several, and bytes that a rank sent in one.
struct RankTiming {
  double step = 0;
  double exposed = 0;  // waited for communication
  double sent = 0;
  double tokens = 0;       // in a step
  std::size_t memory = 0;  // planned, of the rank that has most

  // Of further steps that are traced, means over ranks and steps:
  double communication = 0;  // seconds in collectives and messages,
  double hidden = 0;         // and of these while something was computed
  // What the order of the program allows: a step in which every kernel takes its undisturbed time, every collective the
  // least that some rank ever took for it, and no stream waits but for its events.
  double allowed = 0;
};

// A run of `source` with the context's settings and further ones; `traced`: with the traced steps.
RankTiming time_ranks(Context& context, const std::string& source, const std::vector<std::string>& settings, int steps,
                      bool traced = false);

}  // namespace trireme::cli
