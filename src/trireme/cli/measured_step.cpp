#include "trireme/cli/measured_step.h"

#include <chrono>

#include "trireme/core/error.h"
#include "trireme/runtime/trace.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

std::vector<double> measured_steps(const train::Config& config, const train::Registry& registry,
                                   const Measuring& measuring) {
  constexpr std::size_t kLeast = 3;
  train::TrainerOptions options;
  options.write = false;
  train::Trainer trainer(config, registry, options);
  trainer.start();
  data::Loader loader = trainer.batches();
  const train::TrainConfig& c = trainer.config().train;
  std::vector<double> seconds;
  double sum = 0;
  int i = 0;
  const auto step = [&] {
    const data::Batch& batch = loader.next();
    const auto begin = std::chrono::steady_clock::now();
    const train::StepResult result = trainer.session().step(batch, i, train::learning_rate(c, i), c.seed);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!result.finite && !result.skipped()) fail("step {} of the measurement is not finite", i + 1);
    ++i;
    return took;
  };
  while (i < measuring.warmup) step();
  for (int k = 0; k < measuring.steps && (seconds.size() < kLeast || sum < measuring.budget); ++k) {
    seconds.push_back(step());
    sum += seconds.back();
  }
  if (measuring.trace.empty()) return seconds;
  constexpr std::size_t kSpans = 1'000'000;
  std::vector<std::unique_ptr<runtime::Trace>> traces;
  for (const auto& rank : trainer.session().ranks()) {
    traces.push_back(std::make_unique<runtime::Trace>(kSpans));
    rank->step_executor().set_trace(traces.back().get());
  }
  step();
  for (std::size_t r = 0; r < traces.size(); ++r) {
    trainer.session().rank(r).step_executor().set_trace(nullptr);
    traces[r]->write(fmt::format("{}.{}.json", measuring.trace, r), fmt::format("rank {}", r));
  }
  return seconds;
}

}  // namespace trireme::cli
