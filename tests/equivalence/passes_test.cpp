// Passes that only make a step faster or smaller leave it the same step.
#include <gtest/gtest.h>

#include "equivalence/training.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

class OptionalPasses : public ::testing::TestWithParam<std::string> {};

TEST_P(OptionalPasses, TrainTheSameWithoutThem) {
  train::Config config = small_model(GetParam());
  config.train.micro_batch = 4;
  Trained all(config);
  all.train(10);
  for (const std::vector<std::string>& disabled :
       std::vector<std::vector<std::string>>{{"fuse"}, {"clean-up"}, {"fuse", "clean-up"}}) {
    SCOPED_TRACE("without " + disabled.front() + (disabled.size() > 1 ? " and clean-up" : ""));
    Trained fewer(config, {.disabled_passes = disabled});
    fewer.train(10);
    expect_equal_training(all, fewer, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptionalPasses, ::testing::ValuesIn(small_models()),
                         [](const auto& one) { return one.param; });

TEST(OptionalPassesOnly, TheOthersAreRefused) {
  for (const char* pass : {"autodiff", "optimizer", "initial-state", "validate"})
    EXPECT_THROW(Trained(small_model("mlp"), {.disabled_passes = {pass}}), Error) << pass;
}

}  // namespace
}  // namespace trireme::testing
