// Runs of asynchronous pipelines: drained where something is due, saved, resumed and stopped.
#include <gtest/gtest.h>

#include <fstream>

#include "equivalence/training.h"
#include "support/folder.h"
#include "trireme/train/trainer.h"

namespace trireme::testing {
namespace {

class AsyncRun : public ::testing::TestWithParam<std::string> {
 protected:
  train::Config config(const std::string& folder, std::int64_t steps) const {
    train::Config c = small_model("mlp");
    c.model.layers = 4;
    c.train.batch = 12;
    c.train.micro_batch = 3;
    c.train.steps = steps;
    c.train.eval_every = 5;
    c.output.checkpoint_every.steps = 4;
    c.output.checkpoint_every.seconds = 0;
    c.output.dir = folder_.path(folder);
    c.parallel.pipeline = GetParam();
    c.runtime.link = std::string(kWaitingSends) + ",1us";
    return over_mesh(c, "pp=3");
  }

  train::Outcome run(const train::Config& c, train::TrainerOptions options = {}) const {
    train::Trainer trainer(c, registry_, std::move(options));
    trainer.start();
    return trainer.run();
  }

  // The step numbers in the metrics of a run; only those of lines without `without`, where that is given.
  std::vector<std::int64_t> logged(const std::string& folder, const std::string& without = "") const {
    std::vector<std::int64_t> steps;
    std::ifstream file(folder_.path(folder) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      if (!without.empty() && line.find(without) != std::string::npos) continue;
      const std::string key = "\"step\":";
      steps.push_back(std::stoll(line.substr(line.find(key) + key.size())));
    }
    return steps;
  }

  static std::vector<std::int64_t> up_to(std::int64_t last) {
    std::vector<std::int64_t> all;
    for (std::int64_t s = 1; s <= last; ++s) all.push_back(s);
    return all;
  }

  test::Folder folder_;
  train::Registry registry_;
};

TEST_P(AsyncRun, ResumedEqualsUninterruptedWithTheSameDrains) {
  const train::Outcome whole = run(config("whole", 12));
  EXPECT_EQ(whole.steps, 12);
  EXPECT_EQ(logged("whole"), up_to(12));
  // Only where it is drained, for a checkpoint or an evaluation, have all stages made the same last update.
  EXPECT_EQ(logged("whole", "\"grad_norm\":null"), (std::vector<std::int64_t>{4, 5, 8, 10, 12}));
  ASSERT_TRUE(whole.evaluation.has_value());
  const train::Outcome first = run(config("resumed", 8));
  ASSERT_EQ(first.losses.size(), 8U);
  const train::Outcome rest = run(config("resumed", 12), {.mode = train::RunMode::resume});
  EXPECT_EQ(logged("resumed"), up_to(12));
  ASSERT_EQ(rest.losses.size(), 4U);
  for (std::size_t s = 0; s < 12; ++s) EXPECT_EQ(whole.losses[s], s < 8 ? first.losses[s] : rest.losses[s - 8]) << s;
  EXPECT_EQ(whole.evaluation, rest.evaluation);
}

TEST_P(AsyncRun, StopsAndSavesWhenAsked) {
  train::Config c = config("stopped", 200);
  c.train.eval_every = 0;
  c.output.checkpoint_every.steps = 0;
  const auto request = [](const train::Metrics& m) {
    return m.step >= 6 ? train::Request::stop : train::Request::none;
  };
  std::vector<std::uint64_t> sent;
  const train::Outcome stopped =
      run(c, {.request = request, .on_step = [&](const train::Metrics& m) { sent.push_back(m.sent_bytes); }});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_GE(stopped.steps, 6);
  EXPECT_LE(stopped.steps, 9);
  EXPECT_EQ(std::ssize(stopped.losses), stopped.steps);
  EXPECT_EQ(logged("stopped"), up_to(stopped.steps));
  // Of each step, although its result comes with a later one: the messages of its micro-batches.
  ASSERT_EQ(std::ssize(sent), stopped.steps);
  for (const std::uint64_t bytes : sent) EXPECT_GE(bytes, sent.front());
  c.train.steps = stopped.steps + 3;
  EXPECT_EQ(run(c, {.mode = train::RunMode::resume}).losses.size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, AsyncRun, ::testing::Values("pipedream", "pipedream-2bw"), [](const auto& tested) {
  return tested.param == "pipedream" ? std::string("stashing") : std::string("delayed");
});

}  // namespace
}  // namespace trireme::testing
