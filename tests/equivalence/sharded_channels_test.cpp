// Ranks that share the channels of convolutions train like one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/trajectory.h"

namespace trireme::testing {
namespace {

// With enough rows that gradients of biases before a batch norm, which are sums that cancel, are more than rounding.
train::Config network(std::int64_t width) {
  train::Config config = small_model("convnet");
  config.model.image = 13;
  config.model.layers = 3;
  config.model.width = width;
  config.train.batch = 32;
  train::resolve_model(config, config.model.vocab);
  return config;
}

// Channels that divide by the ranks, and those that are padded with zeros: of 6 channels four ranks have 2, 2, 2 and
// none.
TEST(TensorParallelChannels, TrainLikeOneRank) {
  for (const auto& [width, tp] : {std::pair{6, 2}, {6, 3}, {8, 4}, {5, 2}, {5, 3}, {6, 4}})
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("width {} tp={} zero={}", width, tp, zero));
      const train::Config plain = network(width);
      if (zero == 0) expect_like_one_rank(plain, over_mesh(plain, fmt::format("tp={}", tp)));
      expect_like_one_rank(plain, over_mesh(plain, fmt::format("dp=2,tp={}", tp), zero));
    }
}

TEST(TensorParallelChannels, PaddedWithImagesStagesAndMicroBatches) {
  train::Config plain = network(5);
  plain.train.micro_batch = 16;
  for (const auto& [mesh, zero] : {std::pair{"tp=3,h=2", 0}, {"w=2,tp=2,dp=2", 3}, {"pp=2,tp=3", 0}})
    expect_like_one_rank(plain, over_mesh(plain, mesh, zero));
  train::Config saved = over_mesh(plain, "tp=3");
  Trained full(saved);
  saved.memory.remat = "full";
  Trained recomputed(saved);
  full.train(2);
  recomputed.train(2);
  expect_same_bits(full, recomputed);
}

TEST(TensorParallelChannels, PaddedInLowPrecision) {
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    // Two layers: behind a third norm rounding in 16 bits is a fifth of what a bias before it moves by.
    train::Config plain = network(5);
    plain.model.layers = 2;
    plain.model.image = 27;
    plain.train.precision = precision;
    plain.train.loss_scale = 1;
    plain.train.optimizer = "sgd";
    plain.train.lr = 0.05;
    expect_like_by_distance(plain, over_mesh(plain, "tp=3"), {.tolerance = kLowPrecision, .planted = true});
  }
}

// What is beyond the channels stays zero, in weights and in what the optimizer keeps of them.
TEST(TensorParallelChannels, PaddingStaysZero) {
  Trained trained(over_mesh(network(5), "tp=3"));
  trained.train(5);
  train::Rank& last = trained.session().rank(2);
  const ir::Module& module = last.role().module;
  for (const char* name : {"blocks.0.conv.weight", "blocks.0.conv.weight/m", "blocks.0.bn.weight", "blocks.0.bn.bias",
                           "blocks.0.bn.running_mean"}) {
    SCOPED_TRACE(name);
    const ir::State& state = module.state(module.find_state(name));
    ASSERT_EQ(state.type.shape[0], 2);
    std::vector<float> values(static_cast<std::size_t>(state.type.elements()));
    last.read_state(name, 0, std::as_writable_bytes(std::span(values)));
    const std::size_t half = values.size() / 2;
    for (std::size_t i = half; i < values.size(); ++i) EXPECT_EQ(values[i], 0) << i;
    EXPECT_TRUE(std::any_of(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                            [](float v) { return v != 0; }));
  }
}

}  // namespace
}  // namespace trireme::testing
