// Loss scaling against a plainly written reference of its rules; what an overflow does, and all that it leaves alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "equivalence/training.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

using State = std::map<std::string, std::vector<float>>;

train::Config fp16_model(const std::string& name) {
  train::Config c = small_model(name);
  c.train.precision = "fp16";
  c.train.loss_scale = 1024;
  return c;
}

void set(Trained& t, const std::string& name, float value, std::size_t element = 0) {
  t.session().write_state(name, element * sizeof value, std::as_bytes(std::span(&value, 1)));
  t.session().refresh_copies();
}

// The rules, in as many words.
struct Scaler {
  float scale = 65536;
  int window = 2000;
  int good = 0;
  int skipped = 0;

  void follow(bool finite) {
    if (finite) {
      ++good;
      if (good == window) {
        scale *= 2;
        good = 0;
      }
    } else {
      scale /= 2;
      good = 0;
      ++skipped;
    }
  }
};

void expect_scaler(const State& state, const Scaler& s) {
  EXPECT_EQ(state.at("loss_scale").front(), s.scale);
  EXPECT_EQ(state.at("loss_scale/good").front(), static_cast<float>(s.good));
  EXPECT_EQ(state.at("loss_scale/skipped").front(), static_cast<float>(s.skipped));
}

bool of_the_scale(const std::string& name) { return name.starts_with("loss_scale"); }

void expect_same_but_for_the_scale(const State& a, const State& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a)
    EXPECT_TRUE(of_the_scale(name) || std::memcmp(values.data(), b.at(name).data(), values.size() * sizeof(float)) == 0)
        << name << " differs";
}

class LossScale : public ::testing::TestWithParam<std::string> {};

TEST_P(LossScale, AnOverflowSkipsThatUpdateAndHalvesTheScale) {
  for (const int micro_batches : {1, 4})
    for (const char* optimizer : {"adamw", "sgd"}) {
      train::Config config = fp16_model(GetParam());
      config.train.micro_batch = config.train.batch / micro_batches;
      config.train.optimizer = optimizer;
      Trained t(config);
      t.train(3);
      set(t, "loss_scale", 0x1p31F);
      const State before = t.state();
      const train::StepResult bad = t.step();
      EXPECT_FALSE(bad.finite);
      EXPECT_EQ(bad.loss_scale, 0x1p31F);
      const State after = t.state();
      expect_same_but_for_the_scale(before, after);
      expect_scaler(after, {.scale = 0x1p30F, .good = 0, .skipped = 1});
      // It was that update alone.
      set(t, "loss_scale", 1024);
      EXPECT_TRUE(t.step().finite);
      expect_scaler(t.state(), {.scale = 1024, .good = 1, .skipped = 1});
      EXPECT_NE(t.state(), after);
    }
}

TEST_P(LossScale, AWeightBeyondFp16SkipsTheUpdate) {
  Trained t(fp16_model(GetParam()));
  t.train(3);
  std::string matrix;
  for (const ir::State& s : t.role().module.states)
    if (s.trained && s.decayed) matrix = s.name;
  const float kept = t.state().at(matrix).front();
  set(t, matrix, 1e9F);
  const State before = t.state();
  EXPECT_FALSE(t.step().finite);
  expect_same_but_for_the_scale(before, t.state());
  expect_scaler(t.state(), {.scale = 512, .good = 0, .skipped = 1});
  set(t, matrix, kept);
  EXPECT_TRUE(t.step().finite);
}

// A run that overflows on its way is, to the bit, one that never took those steps: their batches and their share of
// AdamW's bias correction too.
TEST_P(LossScale, SkippedStepsLeaveNoTrace) {
  const train::Config config = fp16_model(GetParam());
  Trained smooth(config);
  Trained rough(config);
  std::int64_t taken = 0;
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto run = [&](Trained& t, std::int64_t number) {
      return t.session().step(batch_of(config, step), number, config.train.lr, config.train.seed);
    };
    ASSERT_TRUE(run(smooth, step).finite);
    if (step % 2 == 1) {
      set(rough, "loss_scale", 0x1p32F);
      ASSERT_FALSE(run(rough, taken++).finite);
      set(rough, "loss_scale", 1024);
    }
    ASSERT_TRUE(run(rough, taken++).finite);
  }
  EXPECT_EQ(rough.state().at("loss_scale/skipped").front(), 2);
  expect_same_but_for_the_scale(smooth.state(), rough.state());
}

// The scale finds its way down from far too high and up again in a window of three, step by step as the reference; the
// weights are those of a session whose scale is set before each step.
TEST_P(LossScale, FollowsTheReference) {
  train::Config config = fp16_model(GetParam());
  config.train.loss_scale = 0x1p32;
  config.train.loss_scale_window = 3;
  Trained t(config);
  config.train.loss_scale_window = 1000;
  Trained given(config);
  Scaler reference{.scale = 0x1p32F, .window = 3};
  int doubled = 0;
  for (int i = 0; i < 60; ++i) {
    set(given, "loss_scale", reference.scale);
    set(given, "loss_scale/skipped", static_cast<float>(reference.skipped));
    const train::StepResult result = t.step();
    const train::StepResult expected = given.step();
    EXPECT_EQ(result.loss_scale, reference.scale) << "step " << i;
    ASSERT_EQ(result.finite, expected.finite) << "step " << i;
    EXPECT_TRUE(result.loss == expected.loss || !result.finite) << "step " << i;
    const float before = reference.scale;
    reference.follow(result.finite);
    doubled += reference.scale > before ? 1 : 0;
    expect_scaler(t.state(), reference);
  }
  EXPECT_GT(reference.skipped, 1);
  EXPECT_GT(doubled, 1);
  expect_same_but_for_the_scale(t.state(), given.state());
}

INSTANTIATE_TEST_SUITE_P(All, LossScale, ::testing::Values("gpt2", "llama", "mlp", "convnet"),
                         [](const auto& one) { return one.param; });

TEST(LossScaleBounds, StaysBetweenOneAndItsHighest) {
  train::Config config = fp16_model("mlp");
  config.train.loss_scale_window = 1;
  Trained t(config);
  set(t, "loss_scale", 1);
  std::string matrix;
  for (const ir::State& s : t.role().module.states)
    if (s.trained && s.decayed) matrix = s.name;
  const float kept = t.state().at(matrix).front();
  set(t, matrix, 1e9F);
  EXPECT_FALSE(t.step().finite);
  EXPECT_EQ(t.state().at("loss_scale").front(), 1);
  set(t, matrix, kept);
  EXPECT_TRUE(t.step().finite);
  EXPECT_EQ(t.state().at("loss_scale").front(), 2);
}

// What scaling is for: behind a last layer of small weights, a large batch's gradients are below what f16 can hold.
TEST(LossScaleBounds, ScaledGradientsSurvive) {
  train::Config config = small_model("mlp");
  config.train.optimizer = "sgd";
  config.train.momentum = config.train.weight_decay = config.train.clip = 0;
  config.train.lr = 1e6;  // the gradients are small enough
  config.train.batch = 512;
  const auto first_layer_update = [&](const std::string& precision, double scale) {
    config.train.precision = precision;
    config.train.loss_scale = scale;
    Trained t(config);
    std::vector<float> values(t.session().state("head.weight").size() / sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0x1p-22F * static_cast<float>(i % 7);
    t.session().write_state("head.weight", 0, std::as_bytes(std::span(values)));
    t.session().refresh_copies();
    std::vector<float> update = t.state().at("layers.0.weight");
    EXPECT_TRUE(t.step().finite);
    const std::vector<float> after = t.state().at("layers.0.weight");
    for (std::size_t i = 0; i < update.size(); ++i) update[i] -= after[i];
    return update;
  };
  const std::vector<float> exact = first_layer_update("f32", 1);
  const auto error = [&](const std::vector<float>& update) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      difference += std::pow(static_cast<double>(update[i] - exact[i]), 2);
      norm += std::pow(static_cast<double>(exact[i]), 2);
    }
    return std::sqrt(difference / norm);
  };
  EXPECT_LT(error(first_layer_update("fp16", 65536)), 0.02);
  EXPECT_EQ(error(first_layer_update("fp16", 1)), 1);  // nothing is left of them
}

}  // namespace
}  // namespace trireme::testing
