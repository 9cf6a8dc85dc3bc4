// bf16 arithmetic with f32 masters learns as f32 does.
#include <gtest/gtest.h>

#include <cmath>

#include "equivalence/training.h"

namespace trireme::testing {
namespace {

class Precision : public ::testing::TestWithParam<std::string> {};

TEST_P(Precision, LossCurveStaysWithF32) {
  train::Config config = small_model(GetParam());
  config.train.lr = 3e-3;
  Trained f32(config, {.threads = 2});
  config.train.precision = "bf16";
  Trained bf16(config, {.threads = 2});
  constexpr std::size_t kSteps = 100;
  f32.train(kSteps);
  bf16.train(kSteps);
  EXPECT_NE(f32.losses(), bf16.losses()) << "bf16 computed in f32";
  const double start = f32.losses().front();
  double squares = 0;
  double end_f32 = 0;
  double end_bf16 = 0;
  for (std::size_t i = 0; i < kSteps; ++i) {
    const double difference = f32.losses()[i] - bf16.losses()[i];
    squares += difference * difference;
    if (i < kSteps - 10) continue;
    end_f32 += f32.losses()[i] / 10;
    end_bf16 += bf16.losses()[i] / 10;
  }
  EXPECT_LT(end_f32, 0.8 * start) << "nothing was learned";
  EXPECT_NEAR(end_bf16, end_f32, 0.03 * end_f32);
  EXPECT_LT(std::sqrt(squares / kSteps), 0.02 * start);
}

INSTANTIATE_TEST_SUITE_P(All, Precision, ::testing::Values("gpt2", "llama", "mlp"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace trireme::testing
