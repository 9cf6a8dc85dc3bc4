// Asynchronous pipelines train as a plainly written reference of their rules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "equivalence/pipedream_reference.h"
#include "trireme/core/error.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

train::Config piped(const std::string& name, const std::string& mesh, const std::string& pipeline, int micro_batches,
                    int zero = 0) {
  train::Config config = small_model(name);
  config.model.layers = 4;
  config.model.tie_embeddings = false;
  config.train.batch = 12;
  config.train.micro_batch = 12 / micro_batches;
  config.parallel.pipeline = pipeline;
  train::resolve_model(config, config.model.vocab);
  return over_mesh(config, mesh, zero);
}

// Several steps of a pipeline that stays full in between.
class Piped {
 public:
  explicit Piped(const train::Config& config) : config_(config), trained_(config) {}

  void train(std::int64_t steps, const std::function<bool()>& interrupt = {}) {
    const auto first = static_cast<std::int64_t>(losses_.size());
    std::vector<std::vector<data::Batch>> batches(trained_.session().ranks().size());
    taken_ = trained_.session().run({.first = first,
                                     .count = steps,
                                     .seed = config_.train.seed,
                                     .lr = [&](std::int64_t step) { return train::learning_rate(config_.train, step); },
                                     .batch = [&](std::size_t rank, std::int64_t step) -> const data::Batch& {
                                       return batches[rank].emplace_back(batch_of(config_, step));
                                     },
                                     .done =
                                         [&](std::size_t rank, std::int64_t step, const train::StepResult& result) {
                                           if (rank != 0) return;
                                           EXPECT_EQ(step, static_cast<std::int64_t>(losses_.size()));
                                           EXPECT_TRUE(result.finite);
                                           losses_.push_back(static_cast<double>(result.loss));
                                         },
                                     .interrupt = interrupt});
  }

  std::int64_t taken() const { return taken_; }
  const std::vector<double>& losses() const { return losses_; }
  Trained& trained() { return trained_; }

 private:
  train::Config config_;
  Trained trained_;
  std::vector<double> losses_;
  std::int64_t taken_ = 0;
};

void expect_like_reference(const train::Config& config, std::int64_t steps) {
  PipedreamReference reference(config);
  Piped piped(config);
  // Drained once on the way.
  for (const std::int64_t some : {steps - 2, std::int64_t{2}}) {
    reference.train(some);
    piped.train(some);
    EXPECT_EQ(piped.taken(), some);
  }
  ASSERT_EQ(reference.losses().size(), piped.losses().size());
  for (std::size_t s = 0; s < reference.losses().size(); ++s)
    EXPECT_NEAR(piped.losses()[s], reference.losses()[s], 1e-6 * std::abs(reference.losses()[s])) << "step " << s;
  const auto state = piped.trained().state();
  for (const auto& [name, values] : reference.weights()) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double d = static_cast<double>(values[i]) - static_cast<double>(state.at(name)[i]);
      difference += d * d;
      norm += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm) + 1e-7) << name;
  }
  EXPECT_EQ(piped.trained().session().measured_peak(), piped.trained().compiled().arena_bytes());
}

class AsyncPipeline : public ::testing::TestWithParam<std::string> {};

TEST_P(AsyncPipeline, TrainsLikeItsReference) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    for (const int stages : {2, 3})
      for (const int micro_batches : {2, 3, 4, 6}) {
        if (micro_batches < stages && std::string(pipeline) == "pipedream-2bw") continue;
        SCOPED_TRACE(fmt::format("{} {} pp={} m={}", GetParam(), pipeline, stages, micro_batches));
        expect_like_reference(piped(GetParam(), fmt::format("pp={}", stages), pipeline, micro_batches), 7);
      }
}

INSTANTIATE_TEST_SUITE_P(Models, AsyncPipeline, ::testing::Values("mlp", "gpt2", "llama"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace trireme::testing
