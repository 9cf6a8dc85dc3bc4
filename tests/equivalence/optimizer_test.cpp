// Learning rates against their closed forms, and what weight decay touches.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "equivalence/training.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

constexpr double kLr = 0.4;
constexpr double kMinLr = 0.1;
constexpr std::int64_t kWarmup = 10;
constexpr std::int64_t kSteps = 110;

train::TrainConfig schedule(const std::string& name) {
  train::TrainConfig c;
  c.schedule = name;
  c.lr = kLr;
  c.min_lr = kMinLr;
  c.warmup = kWarmup;
  c.steps = kSteps;
  return c;
}

// `form` takes the share of the way from the end of the warm-up to the end of the schedule.
void expect_curve(const train::TrainConfig& c, const std::function<double(double)>& form) {
  for (std::int64_t step = 0; step < kSteps + 20; ++step) {
    const double t = std::min(1.0, static_cast<double>(step - kWarmup) / static_cast<double>(kSteps - kWarmup));
    const double expected = step < kWarmup ? kLr * static_cast<double>(step + 1) / kWarmup : form(t);
    EXPECT_NEAR(train::learning_rate(c, step), expected, 1e-12) << c.schedule.text() << " at step " << step;
  }
}

TEST(Schedule, Cosine) {
  const auto form = [](double t) { return kMinLr + (kLr - kMinLr) * (1 + std::cos(std::numbers::pi * t)) / 2; };
  expect_curve(schedule("cosine"), form);
  // Extending the run does not change the curve when its length is named.
  train::TrainConfig longer = schedule("cosine");
  longer.steps = 1000;
  longer.decay_steps = kSteps;
  expect_curve(longer, form);
}

TEST(Schedule, Linear) {
  expect_curve(schedule("linear"), [](double t) { return kLr + (kMinLr - kLr) * t; });
}

TEST(Schedule, Constant) {
  expect_curve(schedule("constant"), [](double) { return kLr; });
}

TEST(Schedule, WarmUpStayDecay) {
  expect_curve(schedule("wsd:0.25"),
               [](double t) { return t < 0.75 ? kLr : kLr + (kMinLr - kLr) * (t - 0.75) / 0.25; });
  EXPECT_EQ(train::learning_rate(schedule("wsd:0.25"), kSteps), kMinLr);
}

TEST(Schedule, WithoutWarmUpStartsAtThePeak) {
  train::TrainConfig c = schedule("cosine");
  c.warmup = 0;
  EXPECT_EQ(train::learning_rate(c, 0), kLr);
  c.warmup = kSteps;  // nothing but warm-up
  EXPECT_EQ(train::learning_rate(c, kSteps - 1), kLr);
}

// The update with decay, less the same without, is −lr·decay·p where decay applies, and nothing elsewhere.
TEST(WeightDecay, OnMatricesAloneAndDecoupled) {
  for (const char* optimizer : {"adamw", "sgd"})
    for (const std::string& model : small_models()) {
      SCOPED_TRACE(std::string(optimizer) + " " + model);
      train::Config config = small_model(model);
      config.train.optimizer = optimizer;
      config.train.lr = 0.01;
      config.train.weight_decay = 0;
      Trained plain(config);
      config.train.weight_decay = 0.5;
      Trained decayed(config);
      const auto start = plain.state();
      plain.train(1);
      decayed.train(1);
      const auto without = plain.state();
      const auto with = decayed.state();
      int touched = 0;
      for (const ir::State& state : plain.role().module.states) {
        if (!state.trained) continue;
        const bool applies = state.type.shape.rank() >= 2 && !state.name.ends_with("bias");
        const auto& a = without.at(state.name);
        const auto& b = with.at(state.name);
        if (!applies) {
          EXPECT_TRUE(a == b) << state.name;
          continue;
        }
        ++touched;
        for (std::size_t i = 0; i < a.size(); ++i) {
          const double p = static_cast<double>(start.at(state.name)[i]);
          const double difference = static_cast<double>(b[i]) - static_cast<double>(a[i]);
          ASSERT_NEAR(difference, -0.01 * 0.5 * p, 2e-7 * (std::abs(p) + 0.02)) << state.name << " element " << i;
        }
      }
      EXPECT_GT(touched, 1);
    }
}

}  // namespace
}  // namespace trireme::testing
