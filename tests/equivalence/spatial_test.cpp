// Images sharded by height and width train like whole ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "equivalence/trajectory.h"
#include "support/larger.h"
#include "trireme/core/error.h"
#include "trireme/ir/slice.h"
#include "trireme/models/layers.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/ops/conv/conv2d.h"
#include "trireme/ops/conv/pool2d.h"

namespace trireme::testing {
namespace {

// The families, and "residual": blocks of a residual network, few enough that rounding does not grow from step to step.
// A batch norm's bias that stands before another batch norm, which takes shifts out again, has a gradient that is what
// is left of a sum that cancels. With 8 rows it is mostly rounding: start values that differ in their last bit make as
// large a difference on one rank (2.2e-5 of the bias's norm after 20 steps) as slices do. With 32 it is not.
train::Config model(const std::string& name, std::int64_t image) {
  train::Config config = small_model(name == "residual" ? "convnet" : name);
  config.model.image = image;
  if (name == "residual" || name == "convnet") config.train.batch = 32;
  train::resolve_model(config, config.model.vocab);
  return config;
}

// Under the name of a family that there is.
Setup with_model(std::function<ir::Value(const ir::Builder&, const models::Batch&, const models::ModelConfig&)> build) {
  Setup setup;
  setup.registry.models = {};
  setup.registry.models.add({"convnet", std::move(build), true, [](models::ModelConfig&, const OptionNames&) {}});
  return setup;
}

Setup setup_of(const std::string& name) {
  if (name != "residual") return {};
  return with_model([](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
    return models::build_resnet(b, in, {.bottleneck = false, .blocks = {1, 1}, .widths = {4, 8}}, c.classes);
  });
}

void expect_like_one_rank(const train::Config& plain, const train::Config& sharded, const Setup& setup,
                          std::int64_t steps = steps_asked(3)) {
  testing::expect_like_one_rank(plain, sharded, {.steps = steps, .setup = setup});
}

class Spatial : public ::testing::TestWithParam<std::string> {};

TEST_P(Spatial, ShardedImagesTrainLikeWholeOnes) {
  for (const char* mesh : {"h=2", "w=2", "h=3", "h=2,w=2", "w=3,h=2"})
    for (const std::int64_t image : {29, 32}) {
      SCOPED_TRACE(fmt::format("{} image {}", mesh, image));
      const train::Config plain = model(GetParam(), image);
      // As many as the law asks for: a bias that starts at zero has moved hardly further than rounding after a few.
      expect_like_one_rank(plain, over_mesh(plain, mesh), setup_of(GetParam()), steps_asked(20));
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
  plain.train.micro_batch = plain.train.batch / 2;
  for (const auto& [mesh, zero] : {std::pair{"h=2,w=2", 0}, {"dp=2,h=3", 2}})
    expect_like_one_rank(plain, over_mesh(plain, mesh, zero), setup_of(GetParam()));
}

TEST_P(Spatial, WithStages) {
  train::Config plain = model(GetParam(), 27);
  plain.train.micro_batch = plain.train.batch / 2;
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
      EXPECT_EQ(with.session().highest_offset(), with.compiled().arena_bytes());
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

// The largest difference of a weight, relative to its tensor's norm.
double largest_difference(Trained& a, Trained& b) {
  double largest = 0;
  const auto theirs = b.state();
  for (const auto& [name, values] : a.state()) {
    if (name.find('/') != std::string::npos) continue;
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(theirs.at(name)[i]), 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
    if (difference != 0) largest = larger(largest, std::sqrt(difference / norm));
  }
  return largest;
}

// What these comparisons see: one row of pixels at the edge of a slice, wrong by a thousandth.
TEST(SpatialParallel, AnEdgeRowThatIsWrongByAThousandthIsSeen) {
  const train::Config plain = model("residual", 29);
  auto wrong = setup_of("residual");
  wrong.batch = [](const train::Config& c, std::int64_t step) {
    data::Batch batch = batch_of(c, step);
    const std::int64_t pixels = c.model.image * c.model.channels;
    for (std::int64_t n = 0; n < batch.rows; ++n)
      for (std::int64_t i = 0; i < pixels; ++i)
        batch.images[static_cast<std::size_t>((n * c.model.image + c.model.image / 2) * pixels + i)] *= 1.001F;
    return batch;
  };
  Trained one(plain, setup_of("residual"));
  Trained right(over_mesh(plain, "h=2"), setup_of("residual"));
  Trained many(over_mesh(plain, "h=2"), wrong);
  for (Trained* trained : {&one, &right, &many}) trained->train(3);
  EXPECT_LE(largest_difference(one, right), 2e-5);
  EXPECT_GT(largest_difference(one, many), 2e-4);
}

// Deep stacks of batch norms multiply rounding from step to step, and Adam divides small gradients by their size: one
// step of SGD is what can be compared closely. It is as long as an update must be to be more than the rounding of the
// weights.
train::Config residual_network() {
  train::Config config = model("resnet18", 35);
  config.train.batch = 32;
  config.train.optimizer = "sgd";
  config.train.lr = 0.01;
  return config;
}

// Slices at the edges of an image are made by other nodes than those between: what is recomputed has names that only
// some places know.
TEST(SpatialParallel, RecomputesWhatSomePlacesAloneMake) {
  for (const auto& [name, mesh] : {std::pair{"resnet18", "dp=2,h=2,tp=2"}, {"convnet", "h=2"}, {"convnet", "h=2,w=2"}})
    for (const char* remat : {"sqrt", "full"}) {
      SCOPED_TRACE(fmt::format("{} {} {}", name, mesh, remat));
      train::Config plain = small_model(name);
      plain.model.image = 9;
      if (std::string(name) == "convnet") plain.model.layers = 3;
      train::resolve_model(plain, plain.model.vocab);
      const train::Config sharded = over_mesh(plain, mesh);
      train::Config config = sharded;
      config.memory.remat = remat;
      Trained without(sharded);
      Trained with(config);
      without.train(2);
      with.train(2);
      expect_same_bits(without, with);
    }
}

TEST(SpatialParallel, ResidualNetworks) {
  const train::Config plain = residual_network();
  for (const auto& [mesh, zero] : {std::pair{"h=3", 0}, {"w=2", 0}, {"h=2,dp=2,w=2", 3}}) {
    SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
    expect_like_by_distance(plain, over_mesh(plain, mesh, zero),
                            {.tolerance = {2e-5, 1e-3}, .steps = 1, .planted = zero == 3});
  }
}

TEST(SpatialParallel, InLowPrecision) {
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    train::Config plain = model("convnet", 27);
    plain.train.precision = precision;
    plain.train.loss_scale = 1;
    // AdamW would turn rounding, where a gradient is nearly zero, into full steps.
    plain.train.optimizer = "sgd";
    plain.train.lr = 0.05;
    expect_like_by_distance(plain, over_mesh(plain, "h=2,w=2"), {.tolerance = kLowPrecision, .planted = true});
  }
}

// Channels are sharded over tp, and images over h.
TEST(SpatialParallel, WithShardedChannels) {
  const train::Config plain = model("convnet", 13);
  for (const auto& [mesh, zero] : {std::pair{"tp=2", 0}, {"tp=2,h=3", 0}, {"w=2,tp=2", 0}, {"dp=2,h=2,tp=2", 2}}) {
    SCOPED_TRACE(mesh);
    expect_like_one_rank(plain, over_mesh(plain, mesh, zero), {});
  }
  const train::Config residual = residual_network();
  expect_like_by_distance(residual, over_mesh(residual, "h=2,tp=2"), {.tolerance = {2e-5, 1e-3}, .steps = 1});
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

// Batch norms by each rank's own rows. The reference normalises slices of height and width, and rows of the batch, by
// themselves, on one rank.
ir::Value norm_of_slices(const ir::Builder& b, const ir::Value& x, const ir::Mesh& mesh) {
  const Shape channels{x.shape().back()};
  const ir::Value weight = b.parameter("weight", channels, ir::Init::constant(1));
  const ir::Value bias = b.bias("bias", channels);
  const ir::Value mean = b.state("running_mean", {DType::f32, channels}, ir::Category::statistics, {});
  const ir::Value variance =
      b.state("running_var", {DType::f32, channels}, ir::Category::statistics, ir::Init::constant(1));
  ir::Value new_mean;
  ir::Value new_variance;
  const double share = 1.0 / mesh.ranks();
  const std::function<ir::Value(const ir::Value&, int)> part = [&](const ir::Value& y, int dim) {
    if (dim == 3) {
      const auto out = ir::apply("batch_norm", {b.here(y), weight, bias, mean, variance}, {{"training", b.training}});
      const ir::Value m = ir::apply1("scale", {out[3]}, {{"factor", share}});
      const ir::Value v = ir::apply1("scale", {out[4]}, {{"factor", share}});
      new_mean = new_mean ? ir::apply1("add", {new_mean, m}) : m;
      new_variance = new_variance ? ir::apply1("add", {new_variance, v}) : v;
      return out[0];
    }
    const int ranks = mesh.size_of(std::array{"dp", "h", "w"}[static_cast<std::size_t>(dim)]);
    std::vector<ir::Value> parts;
    for (int r = 0; r < ranks; ++r) {
      const ir::Range own = ir::spatial_shard(y.shape()[dim], ranks, r);
      parts.push_back(part(
          ir::apply1("slice", {y}, {{"dim", std::int64_t{dim}}, {"start", own.first}, {"end", own.last}}), dim + 1));
    }
    return parts.size() == 1 ? parts.front() : ir::apply1("concat", parts, {{"dim", std::int64_t{dim}}});
  };
  const ir::Value y = part(x, 0);
  if (b.training) {
    b.write(mean, new_mean);
    b.write(variance, new_variance);
  }
  return y;
}

Setup with_norms_of_slices(const std::string& mesh) {
  return with_model([mesh](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
    ir::Value x = in.images;
    for (int i = 0; i < 2; ++i) {
      const ir::Builder k = b.scope("blocks", i);
      x = models::conv(k.scope("conv"), x, 4, {.stride = i + 1});
      const ir::Builder norm = k.scope("bn");
      x = models::relu(mesh.empty() ? models::batch_norm(norm, x) : norm_of_slices(norm, x, ir::parse_mesh(mesh)));
    }
    const ir::Value pooled = ops::global_avg_pool(b.scope("pool").here(x));
    const ir::Value weight = b.parameter("head.weight", {c.classes, x.shape().back()}, ir::Init::normal(0.5));
    const ir::Value logits = ir::apply1("matmul", {b.scope("head").here(pooled), weight}, {{"trans_b", true}});
    if (!in.labels) return logits;
    return models::cross_entropy(b.scope("loss"), logits, in.labels);
  });
}

TEST(SpatialParallel, OwnBatchStatistics) {
  for (const char* mesh : {"dp=2", "dp=4", "h=3", "w=2", "h=2,w=2", "dp=2,h=2", "dp=2,h=3,w=2"})
    for (const int zero : {0, 3}) {
      if (zero > 0 && ir::parse_mesh(mesh).size_of("dp") == 1) continue;
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      const train::Config plain = model("convnet", 13);
      train::Config own = over_mesh(plain, mesh, zero);
      own.train.batch_stats = "local";
      Trained one(plain, with_norms_of_slices(mesh));
      Trained many(own, with_norms_of_slices(""));
      Trained global(over_mesh(plain, mesh, zero), with_norms_of_slices(""));
      for (Trained* trained : {&one, &many, &global}) trained->train(steps_asked(3));
      expect_equal_training(one, many, 2e-5);
      double apart = 0;
      for (std::size_t i = 0; i < many.losses().size(); ++i)
        apart = std::max(apart, std::abs(many.losses()[i] / global.losses()[i] - 1));
      EXPECT_GT(apart, 1e-4);
    }
}

// Recomputed and offloaded statistics are each rank's own too; evaluation uses the running ones of all.
TEST(SpatialParallel, OwnBatchStatisticsRecomputed) {
  train::Config plain = over_mesh(model("convnet", 13), "dp=2,h=2", 1);
  plain.train.batch_stats = "local";
  for (const char* remat : {"every:1", "full"}) {
    train::Config config = plain;
    config.memory.remat = remat;
    config.memory.offload = "activations";
    Trained without(plain);
    Trained with(config);
    without.train(2);
    with.train(2);
    expect_same_bits(without, with);
  }
}

// A linear layer over what is left of the images, and the loss of its scores.
ir::Value scores(const ir::Builder& b, const ir::Value& x, const models::Batch& in, const models::ModelConfig& c) {
  const ir::Value weight = b.parameter("head.weight", {c.classes, x.shape().back()}, ir::Init::normal(0.5));
  const ir::Value logits = ir::apply1("matmul", {b.scope("head").here(x), weight}, {{"trans_b", true}});
  if (!in.labels) return logits;
  return ir::apply1("cross_entropy", {logits, in.labels}, {{"scale", 1.0 / 8}});
}

struct Conv {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  bool same = true;  // padded so that stride 1 keeps the extent; else not at all
  std::int64_t groups = 1;
};

// Two such convolutions, so that one of them has an input whose gradient is taken.
Setup with_convolutions(const Conv& conv) {
  return with_model([conv](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
    const std::int64_t padding = conv.same ? (conv.kernel - 1) * conv.dilation / 2 : 0;
    ir::Value x = in.images;
    for (int i = 0; i < 2; ++i) {
      const ir::Builder k = b.scope("conv", i);
      const std::int64_t groups = i == 0 ? 1 : conv.groups;
      const Shape shape{4, conv.kernel, conv.kernel, x.shape().back() / groups};
      x = ops::conv2d(k.here(x), k.parameter("weight", shape, ir::Init::normal(0.2)),
                      i == 0 ? k.parameter("bias", {4}, ir::Init::normal(0.1)) : ir::Value(),
                      {.stride = {conv.stride, conv.stride},
                       .padding = {padding, padding},
                       .dilation = {conv.dilation, conv.dilation},
                       .groups = groups});
      x = ir::apply1("relu", {x});
    }
    return scores(b, ops::global_avg_pool(b.scope("pool").here(x)), in, c);
  });
}

class Convolutions : public ::testing::TestWithParam<int> {};

TEST_P(Convolutions, OfShardedImages) {
  for (const std::int64_t stride : {1, 2})
    for (const std::int64_t dilation : {1, 2})
      for (const bool same : {true, false})
        for (const char* mesh : {"h=3", "w=2", "h=5,w=2"}) {
          const Conv conv{.kernel = GetParam(), .stride = stride, .dilation = dilation, .same = same};
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

TEST(SpatialParallel, GroupedConvolutions) {
  const train::Config plain = model("convnet", 13);
  for (const std::int64_t groups : {2, 4})
    expect_like_one_rank(plain, over_mesh(plain, "h=3,w=2"), with_convolutions({.groups = groups}));
}

struct Pool {
  std::int64_t kernel, stride, padding;
};

TEST(SpatialParallel, Poolings) {
  const train::Config plain = model("convnet", 17);
  for (const Pool& pool : {Pool{2, 2, 0}, {2, 1, 1}, {3, 2, 1}, {3, 1, 1}, {5, 3, 2}, {7, 1, 3}, {2, 3, 0}})
    for (const std::string kind : {"max", "avg", "avg inside"})
      for (const char* mesh : {"h=5", "h=3,w=2"}) {
        SCOPED_TRACE(
            fmt::format("{} kernel {} stride {} padding {} {}", kind, pool.kernel, pool.stride, pool.padding, mesh));
        const auto setup = with_model([&](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
          const ir::Builder k = b.scope("conv");
          ir::Value x =
              ops::conv2d(k.here(in.images), k.parameter("weight", {4, 3, 3, c.channels}, ir::Init::normal(0.2)), {},
                          {.padding = {1, 1}});
          const ops::PoolOptions options{.kernel = {pool.kernel, pool.kernel},
                                         .stride = {pool.stride, pool.stride},
                                         .padding = {pool.padding, pool.padding}};
          x = kind == "max" ? ops::max_pool2d(x, options) : ops::avg_pool2d(x, options, kind == "avg");
          // Squares, so that every element's gradient is its own.
          x = ir::apply1("mul", {x, x});
          return scores(b, ops::global_avg_pool(b.scope("pool").here(x)), in, c);
        });
        expect_like_one_rank(plain, over_mesh(plain, mesh), setup);
      }
}

// Images are gathered where a fully connected layer reads them; dropout drops the same elements.
TEST(SpatialParallel, DropoutAndAFullyConnectedEnd) {
  train::Config plain = model("convnet", 7);
  plain.model.dropout = 0.3;
  const auto setup = with_model([](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& c) {
    const ir::Builder k = b.scope("conv");
    ir::Value x = ops::conv2d(k.here(in.images), k.parameter("weight", {6, 3, 3, c.channels}, ir::Init::normal(0.2)),
                              {}, {.padding = {1, 1}});
    x = models::dropout(b.scope("drop"), x, c.dropout);
    const Shape shape = x.shape();
    x = ir::apply1("reshape", {b.scope("flat").here(x)},
                   {{"shape", std::vector<std::int64_t>{shape[0], shape.elements(1, 4)}}});
    return scores(b, x, in, c);
  });
  for (const char* mesh : {"h=3", "w=2", "h=3,w=2,dp=2"}) {
    SCOPED_TRACE(mesh);
    expect_like_one_rank(plain, over_mesh(plain, mesh), setup);
  }
}

// Rows of halos that a role sends in a step, times what a row is.
std::uint64_t halo_bytes(const train::Role& role) {
  std::uint64_t bytes = 0;
  for (const program::Instruction& i : role.program("step").instructions) {
    if (i.op == nullptr || i.op->name != ops::kHaloExchange) continue;
    const ops::Halo halo(i.attributes);
    bytes += static_cast<std::uint64_t>(halo.rows_given()) * ops::halo_row_bytes(i.inputs.front().type, halo.dim);
  }
  return bytes;
}

// x of the first convolution, x and dy of the second, x or dy of the first for its weights: a kernel's radius each.
TEST(SpatialTraffic, HalosAreAsLargeAsTheKernelsRadius) {
  for (const std::int64_t kernel : {1, 3, 5, 7})
    for (const std::int64_t dilation : {1, 2})
      for (const int ranks : {2, 3}) {
        const Conv conv{.kernel = kernel, .dilation = dilation};
        const std::int64_t image = 12 * ranks;  // a slice is as large as the largest kernel
        SCOPED_TRACE(fmt::format("kernel {} dilation {} h={}", kernel, dilation, ranks));
        train::Config config = over_mesh(model("convnet", image), fmt::format("h={}", ranks));
        config.parallel.allreduce = "ring";
        Trained trained(config, with_convolutions(conv));
        const std::int64_t radius = (kernel - 1) * dilation / 2;
        const auto row = [&](std::int64_t channels) { return config.train.batch * image * channels * 4; };
        // Of x, and backwards of dy; the first layer, which has no gradient of x, takes the halo with fewer channels.
        const std::int64_t channels = config.model.channels;
        const std::int64_t one_side = radius * (row(channels) + 2 * row(4) + row(std::min<std::int64_t>(channels, 4)));
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(halo_bytes(trained.compiled().role_of(r)),
                    static_cast<std::uint64_t>(one_side * (r == 0 || r + 1 == ranks ? 1 : 2)));
        if (ranks > 2) continue;
        // Of two ranks a ring sends as many bytes as are summed: what is left are halos.
        std::uint64_t summed = 0;
        for (const program::Instruction& i : trained.role().program("step").instructions)
          if (i.op != nullptr && i.op->name == "all_reduce")
            for (const program::Operand& o : i.inputs) summed += o.type.bytes();
        trained.train(1);
        const std::uint64_t before = trained.session().sent_bytes();
        trained.train(1);
        const auto measured = static_cast<double>(trained.session().sent_bytes() - before);
        // A ring cuts an odd number of elements in unequal parts.
        EXPECT_NEAR(measured, static_cast<double>(summed) + static_cast<double>(one_side), 64);
      }
}

// Of every convolution whose windows are mostly a rank's own, these are computed before the halos are waited for.
TEST(SpatialTraffic, HalosAreOverlappedWithTheInterior) {
  for (const bool overlap : {true, false}) {
    train::Config config = over_mesh(model("convnet", 32), "h=2");
    config.parallel.overlap = overlap;
    const Trained trained(config, with_convolutions({.kernel = 3}));
    const std::vector<program::Instruction>& all = trained.role().program("step").instructions;
    int exchanges = 0;
    int overlapped = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].op == nullptr || all[i].op->name != ops::kHaloExchange || all[i].phase != ir::Phase::forward) continue;
      ++exchanges;
      const auto waits = [&](const program::Instruction& later) {
        return std::find(later.waits.begin(), later.waits.end(), all[i].records) != later.waits.end();
      };
      for (std::size_t j = i + 1; j < all.size() && !(all[j].stream == 0 && waits(all[j])); ++j)
        if (all[j].op != nullptr && all[j].op->name == "conv2d" && all[j].stream != all[i].stream) {
          ++overlapped;
          break;
        }
    }
    EXPECT_EQ(exchanges, 2);
    EXPECT_EQ(overlapped, overlap ? 2 : 0);
  }
}

// Each rank has its slices alone: of activations no more than its part, and the halo of one layer at a time.
TEST(SpatialParallel, ActivationsAreSharded) {
  const auto activations = [](const train::Config& config) {
    const Trained trained(config);
    std::size_t most = 0;
    for (const program::Buffer& buffer : trained.role().program("step").buffers)
      if (buffer.category == program::Category::activations) most = std::max(most, buffer.bytes);
    return std::pair{most, trained.compiled().arena_bytes()};
  };
  train::Config plain = model("convnet", 64);
  plain.model.width = 16;
  const auto [one_largest, one_peak] = activations(plain);
  const auto [largest, peak] = activations(over_mesh(plain, "h=4"));
  EXPECT_LE(largest, one_largest / 4 + one_largest / 32);  // with a halo of a row on either side
  EXPECT_LE(peak, one_peak * 2 / 5);
}

void expect_refused(const std::string& name, std::int64_t image, const std::string& mesh, const std::string& text) {
  train::Config config = small_model(name);
  if (reads_images(config)) config.model.image = image;
  config.parallel.mesh = mesh;
  try {
    train::check(config);
    train::compile(config, {}, {});
    ADD_FAILURE() << mesh << " was accepted for " << name;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(SpatialParallel, WhatCannotBeShardedIsRefused) {
  expect_refused("gpt2", 0, "h=2", "the nearest is \"dp=2\"");
  expect_refused("llama", 0, "dp=2,w=3", "the nearest is \"dp=4\"");  // of a batch of 8 rows
  expect_refused("mlp", 11, "h=2", "nothing that the model makes of its images has a height or width");
  expect_refused("convnet", 5, "h=6", "the nearest is h=5");
  train::Config compressed = small_model("convnet");
  compressed.parallel.mesh = "h=2";
  compressed.parallel.compress = "int8";
  try {
    train::check(compressed);
    ADD_FAILURE() << "one replica has nothing to compress";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("has one replica; the nearest is \"dp=2,h=2\""), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace trireme::testing
