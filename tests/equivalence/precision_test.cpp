// Arithmetic in bf16, fp16 and fp8 with f32 masters learns as f32 does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "equivalence/training.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  std::string precision;
};

void use_multiples_of_16(train::Config& config) {
  config.model.width = 32;
  if (reads_images(config)) {
    config.model.image = 8;
    config.model.classes = 16;
    config.train.batch = 32;
    return;
  }
  config.model.head_dim = 8;
  config.model.ffn = 64;
  config.model.context = 16;
}

class Precision : public ::testing::TestWithParam<Case> {};

TEST_P(Precision, LossCurveStaysWithF32) {
  train::Config config = small_model(GetParam().model);
  const bool fp8 = GetParam().precision == "fp8";
  if (fp8) use_multiples_of_16(config);
  config.train.lr = 3e-3;
  Trained f32(config, {.threads = 2});
  config.train.precision = GetParam().precision;
  config.train.loss_scale = 1024;  // no update is skipped, which would set one curve back against the other
  Trained low(config, {.threads = 2});
  constexpr std::size_t kSteps = 100;
  f32.train(kSteps);
  low.train(kSteps);
  EXPECT_NE(f32.losses(), low.losses()) << "computed in f32";
  const std::vector<program::Instruction>& step = low.role().program("step").instructions;
  const auto products = std::count_if(step.begin(), step.end(), [](const program::Instruction& i) {
    return i.op != nullptr && i.op->name == "matmul_fp8";
  });
  const bool mlp = GetParam().model == "mlp";  // whose images have no gradient
  const std::int64_t layers = mlp ? 1 : GetParam().model == "llama" ? 7 : 4;
  EXPECT_EQ(products, fp8 ? 3 * layers * config.model.layers - (mlp ? 1 : 0) : 0);
  const double start = f32.losses().front();
  double squares = 0;
  double end_f32 = 0;
  double end_low = 0;
  for (std::size_t i = 0; i < kSteps; ++i) {
    const double difference = f32.losses()[i] - low.losses()[i];
    squares += difference * difference;
    if (i < kSteps - 10) continue;
    end_f32 += f32.losses()[i] / 10;
    end_low += low.losses()[i] / 10;
  }
  EXPECT_LT(end_f32, 0.8 * start) << "nothing was learned";
  EXPECT_NEAR(end_low, end_f32, 0.03 * end_f32);
  EXPECT_LT(std::sqrt(squares / kSteps), 0.02 * start);
}

INSTANTIATE_TEST_SUITE_P(All, Precision,
                         ::testing::Values(Case{"gpt2", "bf16"}, Case{"llama", "bf16"}, Case{"mlp", "bf16"},
                                           Case{"gpt2", "fp16"}, Case{"llama", "fp16"}, Case{"mlp", "fp16"},
                                           Case{"gpt2", "fp8"}, Case{"llama", "fp8"}, Case{"mlp", "fp8"}),
                         [](const auto& one) { return one.param.model + "_" + one.param.precision; });

// Every rank has scales of its own, and its shards of the states.
TEST(Fp8, MeshesLearnAsF32Does) {
  struct Way {
    const char* mesh;
    bool sequence = false;
    int zero = 0;
  };
  for (const char* model : {"gpt2", "llama"})
    for (const Way& way : {Way{"dp=2"},
                           {"tp=2"},
                           {"dp=2,tp=2", false, 3},
                           {"tp=2", true},
                           {"pp=2,dp=2", false, 1},
                           {"dp=2", false, 2}}) {
      SCOPED_TRACE(fmt::format("{} {} sequence {}", model, way.mesh, way.sequence));
      train::Config plain = small_model(model);
      use_multiples_of_16(plain);
      plain.model.head_dim = 16;
      plain.train.lr = 3e-3;
      Trained f32(plain);
      plain.train.precision = "fp8";
      train::Config config = over_mesh(plain, way.mesh, way.zero);
      config.parallel.sequence = way.sequence;
      Trained low(config);
      constexpr std::size_t kSteps = 60;
      f32.train(kSteps);
      low.train(kSteps);
      const std::vector<program::Instruction>& step = low.role().program("step").instructions;
      EXPECT_TRUE(std::any_of(step.begin(), step.end(), [](const program::Instruction& i) {
        return i.op != nullptr && i.op->name == "matmul_fp8";
      }));
      double squares = 0;
      for (std::size_t i = 0; i < kSteps; ++i) squares += std::pow(f32.losses()[i] - low.losses()[i], 2);
      EXPECT_LT(f32.losses().back(), 0.8 * f32.losses().front()) << "nothing was learned";
      EXPECT_LT(std::sqrt(squares / kSteps), 0.02 * f32.losses().front());
    }
}

// Over tp a bias is added, and shards are put together, between its product and the loss.
TEST(Fp8, TheLayerThatMakesTheLogitsIsNotRounded) {
  for (const char* mesh : {"dp=2", "tp=2"}) {
    SCOPED_TRACE(mesh);
    train::Config config = small_model("mlp");
    use_multiples_of_16(config);
    config.model.classes = 64;
    config.train.precision = "fp8";
    Trained low(over_mesh(config, mesh));
    int rounded = 0;
    for (const program::Instruction& i : low.role().program("step").instructions) {
      if (i.op == nullptr || i.op->name != "matmul_fp8") continue;
      ++rounded;
      EXPECT_NE(i.name, "head.matmul");
    }
    EXPECT_GT(rounded, 0);
  }
}

// Codes that are recomputed, or made by other threads, are the same.
TEST(Fp8, RecomputationAndThreadsKeepTheBits) {
  for (const char* model : {"gpt2", "llama"}) {
    train::Config config = small_model(model);
    use_multiples_of_16(config);
    config.train.precision = "fp8";
    Trained plain(config, {.threads = 2});
    config.memory.remat = "full";
    Trained recomputed(config, {.threads = 1});
    plain.train(5);
    recomputed.train(5);
    EXPECT_EQ(plain.losses(), recomputed.losses()) << model;
    EXPECT_EQ(plain.state(), recomputed.state()) << model;
  }
}

}  // namespace
}  // namespace trireme::testing
