// The launches of a real step, replayed as calibration does.
#include "trireme/planner/replay.h"

#include <gtest/gtest.h>

#include "trireme/train/compile.h"

namespace trireme::planner {
namespace {

double seconds_of(const program::Program& program, const std::vector<double>& seconds, const std::string& op) {
  double sum = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (program.instructions[i].op != nullptr && program.instructions[i].op->name == op) sum += seconds[i];
  return sum;
}

// Updates leave the state as it is where a gradient is not finite, and take no time for it. Adam reads and writes seven
// times what a sum of squares reads.
TEST(ReplayedStep, UpdatesTheWeights) {
  const train::Registry registry;
  train::Config config;
  config.model.family = "mlp";
  config.model.layers = 2;
  config.model.width = 1024;
  config.model.image = 16;
  config.model.classes = 10;
  config.data.images = "synthetic";
  config.train.batch = 4;
  train::resolve_model(config, config.model.vocab, registry.models);
  const train::Compiled compiled = train::compile(config, registry, {.threads = 1});
  const program::Program& step = compiled.roles.front().program("step");
  const std::vector<double> seconds = replayed_seconds(step, 1, 0.05);
  EXPECT_GT(seconds_of(step, seconds, "adamw"), 2 * seconds_of(step, seconds, "sum_squares"));
}

}  // namespace
}  // namespace trireme::planner
