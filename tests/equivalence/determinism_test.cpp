// The same numbers again: from one seed, and whatever the number of threads.
#include <gtest/gtest.h>

#include "equivalence/training.h"

namespace trireme::testing {
namespace {

class Determinism : public ::testing::TestWithParam<std::string> {
 protected:
  static train::Config config() {
    train::Config c = small_model(GetParam());
    c.model.dropout = 0.1;
    return c;
  }
};

TEST_P(Determinism, OneSeedGivesTheSameBits) {
  Trained a(config(), {.threads = 2});
  Trained b(config(), {.threads = 2});
  a.train(10);
  b.train(10);
  expect_same_bits(a, b);
  train::Config other = config();
  other.train.seed = 2;
  Trained c(other, {.threads = 2});
  c.train(10);
  EXPECT_NE(a.losses(), c.losses());
}

TEST_P(Determinism, ThreadsDoNotChangeABit) {
  const std::int64_t steps = GetParam().starts_with("resnet") ? 20 : 100;
  for (const char* precision : {"f32", "bf16"}) {
    train::Config c = config();
    c.train.precision = precision;
    Trained one(c);
    one.train(steps);
    for (const int threads : {2, 3}) {
      SCOPED_TRACE(std::string(precision) + " on " + std::to_string(threads) + " threads");
      Trained several(c, {.threads = threads});
      several.train(steps);
      expect_same_bits(one, several);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Determinism, ::testing::ValuesIn(small_models()),
                         [](const auto& one) { return one.param; });

// Sizes at which kernels cut their work into several blocks, which the small models above do not reach.
TEST(DeterminismAtSize, ThreadsDoNotChangeABit) {
  train::Config c = small_model("gpt2");
  c.model.width = 136;
  c.model.ffn = 0;
  c.model.context = 150;
  c.model.vocab = 1031;
  c.model.dropout = 0.1;
  train::resolve_model(c, c.model.vocab);
  Trained one(c);
  one.train(3);
  for (const int threads : {2, 3}) {
    Trained several(c, {.threads = threads});
    several.train(3);
    expect_same_bits(one, several);
  }
}

}  // namespace
}  // namespace trireme::testing
