// Passes that only make a step faster or smaller leave it the same step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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

class WeightGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(WeightGradients, OverlappedTheSameBits) {
  train::Config plain = wider_model(GetParam());
  plain.train.micro_batch = plain.train.batch / 2;
  for (const char* offload : {"none", "activations"})
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("offload {}, {} ranks", offload, ranks));
      train::Config serial = ranks == 1 ? plain : over_ranks(plain, ranks, 1);
      serial.memory.offload = offload;
      serial.memory.offload_policy = "all";
      serial.parallel.bucket.count = 4096;  // several buckets
      train::Config overlapped = serial;
      serial.runtime.overlap_wgrad = false;
      overlapped.runtime.overlap_wgrad = true;
      Trained a(serial, {.threads = 2});
      Trained b(overlapped, {.threads = 2});
      const auto moved = [](const program::Program& p) {
        return std::count_if(p.instructions.begin(), p.instructions.end(),
                             [](const program::Instruction& i) { return i.stream == program::kGradientStream; });
      };
      EXPECT_EQ(moved(a.role().program("step")), 0);
      EXPECT_GT(moved(b.role().program("step")), 2);
      a.train(3);
      b.train(3);
      expect_same_bits(a, b);
    }
}

INSTANTIATE_TEST_SUITE_P(All, WeightGradients, ::testing::ValuesIn(small_models()),
                         [](const auto& one) { return one.param; });

TEST(OptionalPassesOnly, TheOthersAreRefused) {
  for (const char* pass : {"autodiff", "optimizer", "initial-state", "validate"})
    EXPECT_THROW(Trained(small_model("mlp"), {.disabled_passes = {pass}}), Error) << pass;
}

}  // namespace
}  // namespace trireme::testing
