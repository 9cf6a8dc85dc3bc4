// Images sharded by height and width train like whole ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "equivalence/training.h"
#include "trireme/core/error.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/ops/conv/conv2d.h"
#include "trireme/ops/conv/pool2d.h"

namespace trireme::testing {
namespace {

// Steps of each comparison: a few, or as many as the environment asks for.
std::int64_t steps() {
  const char* asked = std::getenv("TRIREME_STEPS");
  return asked == nullptr ? 3 : std::atoll(asked);
}

// The families, and "residual": blocks of a residual network, few enough that rounding does not grow from step to step.
train::Config model(const std::string& name, std::int64_t image) {
  train::Config config = small_model(name == "residual" ? "convnet" : name);
  config.model.image = image;
  train::resolve_model(config, config.model.vocab);
  return config;
}

// Under the name of a family that there is.
Setup with_model(std::function<ir::Value(const ir::Builder&, const models::Batch&, const models::ModelConfig&)> build) {
  Setup setup;
  setup.registry.models = {};
  setup.registry.models.add({"convnet", std::move(build), true, [](models::ModelConfig&) {}});
  return setup;
}

Setup setup_of(const std::string& name) {
  if (name != "residual") return {};
  return with_model([](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
    return models::build_resnet(b, in, {.bottleneck = false, .blocks = {1, 1}, .widths = {4, 8}}, c.classes);
  });
}

void expect_like_one_rank(const train::Config& plain, const train::Config& sharded, const Setup& setup,
                          std::int64_t count = steps()) {
  Trained one(plain, setup);
  Trained many(sharded, setup);
  one.train(count);
  many.train(count);
  expect_equal_training(one, many, 2e-5);
  EXPECT_EQ(many.session().measured_peak(), many.compiled().arena_bytes());
}

class Spatial : public ::testing::TestWithParam<std::string> {};

TEST_P(Spatial, ShardedImagesTrainLikeWholeOnes) {
  for (const char* mesh : {"h=2", "w=2", "h=3", "h=2,w=2", "w=3,h=2"})
    for (const std::int64_t image : {29, 32}) {
      SCOPED_TRACE(fmt::format("{} image {}", mesh, image));
      const train::Config plain = model(GetParam(), image);
      expect_like_one_rank(plain, over_mesh(plain, mesh), setup_of(GetParam()));
    }
}

TEST_P(Spatial, WithReplicasAndShardedState) {
  const train::Config plain = model(GetParam(), 27);
  for (const int zero : {0, 1, 2, 3})
    for (const char* mesh : {"h=3,dp=2", "dp=2,w=2", "h=2,dp=2,w=2"}) {
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      expect_like_one_rank(plain, over_mesh(plain, mesh, zero), setup_of(GetParam()));
    }
}

TEST_P(Spatial, WithMicroBatches) {
  train::Config plain = model(GetParam(), 27);
  plain.train.micro_batch = 4;
  for (const auto& [mesh, zero] : {std::pair{"h=2,w=2", 0}, {"dp=2,h=3", 2}})
    expect_like_one_rank(plain, over_mesh(plain, mesh, zero), setup_of(GetParam()));
}

TEST_P(Spatial, WithStages) {
  train::Config plain = model(GetParam(), 27);
  plain.train.micro_batch = 4;
  for (const auto& [mesh, zero] : {std::pair{"pp=2,h=2", 0}, {"pp=2,dp=2,w=3", 1}})
    expect_like_one_rank(plain, over_mesh(plain, mesh, zero), setup_of(GetParam()));
}

TEST_P(Spatial, WithRecomputationAndOffload) {
  for (const char* remat : {"none", "every:1", "selective", "full"})
    for (const char* offload : {"none", "activations", "all"}) {
      SCOPED_TRACE(fmt::format("remat {} offload {}", remat, offload));
      train::Config plain = over_mesh(model(GetParam(), 27), "h=3,dp=2", 1);
      train::Config config = plain;
      config.memory.remat = remat;
      config.memory.offload = offload;
      config.memory.offload_policy = "all";
      Trained without(plain, setup_of(GetParam()));
      Trained with(config, setup_of(GetParam()));
      without.train(2);
      with.train(2);
      expect_same_bits(without, with);
      EXPECT_EQ(with.session().measured_peak(), with.compiled().arena_bytes());
    }
}

TEST_P(Spatial, EvaluatesAndPredictsLikeOneRank) {
  const train::Config plain = model(GetParam(), 27);
  Trained one(plain, setup_of(GetParam()));
  Trained many(over_mesh(plain, "h=2,w=3"), setup_of(GetParam()));
  one.train(2);
  many.train(2);
  const data::Batch batch = batch_of(plain, 77);
  const train::Evaluation a = one.session().evaluate(batch);
  const train::Evaluation b = many.session().evaluate(batch);
  EXPECT_NEAR(a.loss, b.loss, 2e-5 * a.loss);
  EXPECT_EQ(a.accuracy, b.accuracy);
  const auto logits = [&](Trained& trained) {
    const auto row = trained.session().predict(
        std::span<const float>(batch.images).first(batch.images.size() / static_cast<std::size_t>(batch.rows)));
    return std::vector<float>(row.begin(), row.end());
  };
  const std::vector<float> ours = logits(one);
  const std::vector<float> theirs = logits(many);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, Spatial, ::testing::Values("convnet", "residual"));

// Deep stacks of batch norms multiply rounding from step to step, and Adam divides small gradients by their size: one
// step of SGD is what can be compared closely.
TEST(SpatialParallel, ResidualNetworks) {
  train::Config plain = model("resnet18", 35);
  plain.train.optimizer = "sgd";
  for (const auto& [mesh, zero] : {std::pair{"h=3", 0}, {"w=2", 0}, {"h=2,dp=2,w=2", 3}}) {
    SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
    expect_like_one_rank(plain, over_mesh(plain, mesh, zero), {}, 1);
  }
}

TEST(SpatialParallel, InLowPrecision) {
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    train::Config plain = model("convnet", 27);
    plain.train.precision = precision;
    plain.train.loss_scale = 1;
    Trained one(plain);
    Trained many(over_mesh(plain, "h=2,w=2"));
    one.train(3);
    many.train(3);
    expect_equal_training(one, many, 2e-2);
  }
}

// The last layers make images smaller than the mesh, which every rank has whole.
TEST(SpatialParallel, ImagesThatBecomeSmallerThanTheMesh) {
  train::Config plain = model("convnet", 9);
  plain.model.layers = 3;
  for (const char* mesh : {"h=5", "h=4,w=2"}) expect_like_one_rank(plain, over_mesh(plain, mesh), {});
}

// Statistics are those of all rows, of which the ranks have unequal numbers.
TEST(SpatialParallel, RunningStatisticsOfUnequalSlices) {
  train::Config plain = model("convnet", 7);
  plain.model.layers = 1;
  Trained one(plain);
  Trained many(over_mesh(plain, "h=3,dp=2"));
  one.train(3);
  many.train(3);
  const auto ours = one.state();
  const auto theirs = many.state();
  for (const char* name : {"blocks.0.bn.running_mean", "blocks.0.bn.running_var"}) {
    ASSERT_TRUE(ours.contains(name));
    for (std::size_t c = 0; c < ours.at(name).size(); ++c)
      EXPECT_NEAR(ours.at(name)[c], theirs.at(name)[c], 1e-5 * std::max(1.0F, std::abs(ours.at(name)[c]))) << name;
  }
}

struct Conv {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  bool same = true;  // padded so that stride 1 keeps the extent; else not at all
};

// Two such convolutions, so that one of them has an input whose gradient is taken.
Setup with_convolutions(const Conv& conv) {
  return with_model([conv](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
    const std::int64_t padding = conv.same ? (conv.kernel - 1) * conv.dilation / 2 : 0;
    ir::Value x = in.images;
    for (int i = 0; i < 2; ++i) {
      const ir::Builder k = b.scope("conv", i);
      const Shape shape{4, conv.kernel, conv.kernel, x.shape().back()};
      x = ops::conv2d(k.here(x), k.parameter("weight", shape, ir::Init::normal(0.2)),
                      i == 0 ? k.parameter("bias", {4}, ir::Init::normal(0.1)) : ir::Value(),
                      {.stride = {conv.stride, conv.stride},
                       .padding = {padding, padding},
                       .dilation = {conv.dilation, conv.dilation}});
      x = ir::apply1("relu", {x});
    }
    const ir::Value pooled = ops::global_avg_pool(b.scope("pool").here(x));
    const ir::Value weight = b.parameter("head.weight", {c.classes, 4}, ir::Init::normal(0.5));
    const ir::Value logits = ir::apply1("matmul", {b.scope("head").here(pooled), weight}, {{"trans_b", true}});
    if (!in.labels) return logits;
    return ir::apply1("cross_entropy", {logits, in.labels}, {{"scale", 1.0 / 8}});
  });
}

class Convolutions : public ::testing::TestWithParam<int> {};

TEST_P(Convolutions, OfShardedImages) {
  const Conv base{.kernel = GetParam()};
  for (const std::int64_t stride : {1, 2})
    for (const std::int64_t dilation : {1, 2})
      for (const bool same : {true, false})
        for (const char* mesh : {"h=3", "w=2", "h=5,w=2"}) {
          const Conv conv{base.kernel, stride, dilation, same};
          // The second one's windows must fit, and the sizes not divide.
          const std::int64_t reach = (conv.kernel - 1) * dilation + 1;
          const std::int64_t image = same ? 17 : std::max<std::int64_t>(17, (reach - 1) * (stride + 1) + stride + 12);
          SCOPED_TRACE(fmt::format("kernel {} stride {} dilation {} {} {} image {}", conv.kernel, stride, dilation,
                                   same ? "same" : "none", mesh, image));
          train::Config plain = model("convnet", image);
          plain.train.batch = 8;
          expect_like_one_rank(plain, over_mesh(plain, mesh), with_convolutions(conv));
        }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Convolutions, ::testing::Values(1, 3, 5, 7));

}  // namespace
}  // namespace trireme::testing
