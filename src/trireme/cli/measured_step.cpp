#include "trireme/cli/measured_step.h"

#include <chrono>

#include "trireme/core/error.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

std::vector<double> measured_steps(const train::Config& config, const train::Registry& registry, int steps,
                                   int warmup) {
  train::TrainerOptions options;
  options.write = false;
  train::Trainer trainer(config, registry, options);
  trainer.start();
  data::Loader loader = trainer.batches();
  const train::TrainConfig& c = trainer.config().train;
  std::vector<double> seconds;
  for (int i = 0; i < warmup + steps; ++i) {
    const data::Batch& batch = loader.next();
    const auto begin = std::chrono::steady_clock::now();
    const train::StepResult result = trainer.session().step(batch, i, train::learning_rate(c, i), c.seed);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!result.finite && !result.skipped()) fail("step {} of the measurement is not finite", i + 1);
    if (i >= warmup) seconds.push_back(took);
  }
  return seconds;
}

}  // namespace trireme::cli
