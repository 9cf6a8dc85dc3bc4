// A batch in several micro-batches trains like the same batch at once.
#include <gtest/gtest.h>

#include "equivalence/training.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  double dropout;
};

class Accumulation : public ::testing::TestWithParam<Case> {};

TEST_P(Accumulation, EqualsTheFullBatch) {
  train::Config config = small_model(GetParam().model);
  config.model.dropout = GetParam().dropout;
  Trained whole(config);
  whole.train(10);
  for (const std::int64_t micro_batch : {4, 2, 1}) {
    SCOPED_TRACE("micro-batches of " + std::to_string(micro_batch));
    config.train.micro_batch = micro_batch;
    Trained parts(config);
    parts.train(10);
    expect_equal_training(whole, parts, 1e-5);
  }
}

// Batch norm sees one micro-batch at a time by definition, so convolutional networks are not among them.
INSTANTIATE_TEST_SUITE_P(All, Accumulation,
                         ::testing::Values(Case{"gpt2", 0}, Case{"gpt2", 0.3}, Case{"llama", 0}, Case{"mlp", 0}),
                         [](const auto& one) { return one.param.model + (one.param.dropout > 0 ? "_dropout" : ""); });

// Or the test above would say nothing about dropout.
TEST(AccumulationWithDropout, DropoutIsOn) {
  train::Config config = small_model("gpt2");
  Trained plain(config);
  config.model.dropout = 0.3;
  Trained dropped(config);
  plain.train(1);
  dropped.train(1);
  EXPECT_NE(plain.losses(), dropped.losses());
}

}  // namespace
}  // namespace trireme::testing
