// Ranks that share the model's matrices train like one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "equivalence/training.h"

namespace trireme::testing {
namespace {

// Steps of each comparison: a few, or as many as the environment asks for.
std::int64_t steps() {
  const char* asked = std::getenv("TRIREME_STEPS");
  return asked == nullptr ? 4 : std::atoll(asked);
}

train::Config model(const std::string& name, int tp) {
  train::Config config = small_model(name);
  config.train.batch = 12;
  if (!reads_images(config)) {
    // Heads divide; the vocabulary of 61 and the feed-forward width need padding.
    config.model.heads = tp == 3 ? 6 : 4;
    config.model.kv_heads = name != "llama" ? 0 : tp == 3 ? 3 : tp == 4 ? 4 : 2;
    config.model.head_dim = 0;
    config.model.ffn = 50;
    train::resolve_model(config, config.model.vocab);
  } else {
    config.model.width = 26;
  }
  return config;
}

void expect_like_one_rank(const train::Config& plain, const train::Config& parallel) {
  Trained one(plain);
  Trained many(parallel);
  one.train(steps());
  many.train(steps());
  expect_equal_training(one, many, 2e-5);
  EXPECT_EQ(many.session().measured_peak(), many.compiled().arena_bytes());
}

class TensorParallel : public ::testing::TestWithParam<std::string> {};

TEST_P(TensorParallel, RanksTrainLikeOne) {
  for (const int tp : {2, 3, 4}) {
    SCOPED_TRACE(fmt::format("tp={}", tp));
    const train::Config plain = model(GetParam(), tp);
    expect_like_one_rank(plain, over_mesh(plain, fmt::format("tp={}", tp)));
  }
}

TEST_P(TensorParallel, WithReplicasAndShardedState) {
  for (const int zero : {0, 1, 2, 3})
    for (const char* mesh : {"dp=2,tp=2", "tp=3,dp=2"}) {
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      const train::Config plain = model(GetParam(), mesh[3] == '3' ? 3 : 2);
      expect_like_one_rank(plain, over_mesh(plain, mesh, zero));
    }
}

TEST_P(TensorParallel, WithDropoutMicroBatchesAndLowPrecision) {
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    train::Config plain = model(GetParam(), 2);
    plain.model.dropout = 0.1;
    plain.train.precision = precision;
    plain.train.loss_scale = 1;
    plain.train.micro_batch = 6;
    Trained one(plain);
    Trained many(over_mesh(plain, "dp=2,tp=2", 2));
    one.train(3);
    many.train(3);
    expect_equal_training(one, many, std::string(precision) == "f32" ? 2e-5 : 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel, ::testing::Values("mlp", "gpt2", "llama"));

}  // namespace
}  // namespace trireme::testing
