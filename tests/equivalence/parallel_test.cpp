// Several ranks train like one: the batch cut over them, and what they keep of the state.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "equivalence/trajectory.h"
#include "trireme/passes/autodiff.h"

namespace trireme::testing {
namespace {

// Rows that 2, 3, 4 and 8 ranks can share, in one or two micro-batches.
train::Config shareable(const std::string& model, std::int64_t micro_batches = 1) {
  train::Config config = small_model(model);
  config.train.batch = 48;
  config.train.micro_batch = 48 / micro_batches;
  return config;
}

class DataParallel : public ::testing::TestWithParam<std::string> {};

TEST_P(DataParallel, RanksTrainLikeOne) {
  for (const int ranks : {2, 3, 4, 8})
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("dp={} zero={}", ranks, zero));
      const train::Config plain = shareable(GetParam());
      expect_like_one_rank(plain, over_ranks(plain, ranks, zero), {.tolerance = 1e-5});
    }
}

TEST_P(DataParallel, WithSeveralMicroBatches) {
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("zero={}", zero));
    const train::Config plain = shareable(GetParam(), 2);
    expect_like_one_rank(plain, over_ranks(plain, 3, zero), {.tolerance = 1e-5});
  }
}

TEST_P(DataParallel, EveryAlgorithm) {
  for (const char* algorithm : {"native", "sequential", "parallel", "ring", "recursive", "tree"}) {
    SCOPED_TRACE(algorithm);
    const train::Config plain = shareable(GetParam());
    train::Config parallel = over_ranks(plain, 3);
    parallel.parallel.allreduce = algorithm;
    expect_like_one_rank(plain, parallel, {.tolerance = 1e-5});
  }
}

TEST_P(DataParallel, WithoutOverlapTheSameBits) {
  train::Config overlapped = over_ranks(shareable(GetParam(), 2), 4, 2);
  overlapped.parallel.bucket.count = 4096;  // several buckets
  train::Config plain = overlapped;
  plain.parallel.overlap = false;
  Trained a(overlapped);
  Trained b(plain);
  a.train(3);
  b.train(3);
  expect_same_bits(a, b);
}

TEST_P(DataParallel, WithDropoutAndLowPrecision) {
  for (const char* precision : {"f32", "bf16", "fp16"})
    for (const int zero : {0, 1, 2, 3}) {
      train::Config plain = shareable(GetParam());
      plain.model.dropout = 0.1;
      plain.train.precision = precision;
      plain.train.loss_scale = 1;
      const bool low = std::string(precision) != "f32";
      // Adam would blow up the rounding of small gradients, as it divides by their size.
      plain.train.optimizer = low ? "sgd" : "adamw";
      for (const int ranks : low ? std::vector<int>{4, 8} : std::vector<int>{4}) {
        SCOPED_TRACE(fmt::format("{} dp={} zero={}", precision, ranks, zero));
        expect_like_by_distance(plain, over_ranks(plain, ranks, zero),
                                {.tolerance = low ? kLowPrecision : Tolerance{}, .planted = low && ranks == 8});
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, DataParallel, ::testing::Values("gpt2", "llama", "mlp", "convnet"));

// Deep stacks of batch norms multiply rounding from step to step, and Adam divides small gradients by their size: one
// step of SGD is what can be compared closely.
TEST(Parallel, ResidualNetworks) {
  for (const int zero : {0, 3}) {
    SCOPED_TRACE(fmt::format("zero={}", zero));
    train::Config plain = shareable("resnet18");
    plain.train.optimizer = "sgd";
    plain.train.lr = 0.01;  // an update is more than the rounding of the weights
    plain.train.batch = plain.train.micro_batch = 96;
    expect_like_by_distance(plain, over_ranks(plain, 3, zero),
                            {.tolerance = {2e-5, 1e-3}, .steps = 1, .planted = zero == 3});
  }
}

// Bytes that a rank keeps of a matrix and all that belongs to it, per element.
double persistent_bytes(const train::Role& role, const ir::State& parameter) {
  std::size_t bytes = 0;
  for (const ir::State& state : role.module.states)
    if (state.name == parameter.name || state.name.starts_with(parameter.name + "/")) bytes += state.storage_bytes();
  return static_cast<double>(bytes) / static_cast<double>(parameter.global_shape().elements());
}

TEST(Zero, BytesPerParameterAreThoseOfTheTable) {
  for (const int n : {1, 2, 4, 8})
    for (const int zero : {0, 1, 2, 3})
      for (const bool low : {false, true}) {
        train::Config config = small_model("gpt2");
        config.model.width = 32;
        config.model.heads = 8;
        config.model.ffn = 0;
        config.model.vocab = 64;
        config.model.context = 16;
        config.model.tie_embeddings = false;  // a sum of two gradients is f32
        config.train.batch = 8;
        config.train.precision = low ? "bf16" : "f32";
        train::resolve_model(config, 64);
        const Trained trained(n == 1 ? config : over_ranks(config, n, zero));
        const double shared = 1.0 / n;
        const double expected =
            low ? std::vector<double>{16, 4 + 12 * shared, 2 + 14 * shared, 16 * shared}[n == 1 ? 0U : unsigned(zero)]
                : std::vector<double>{16, 8 + 8 * shared, 4 + 12 * shared, 16 * shared}[n == 1 ? 0U : unsigned(zero)];
        int matrices = 0;
        for (const ir::State& state : trained.role().module.states) {
          if (!state.trained || state.global_shape().rank() < 2) continue;
          EXPECT_EQ(persistent_bytes(trained.role(), state), expected)
              << state.name << " dp=" << n << " zero=" << zero << (low ? " bf16" : " f32");
          ++matrices;
        }
        EXPECT_GE(matrices, 8);
      }
}

// In addition to the stages of a pipeline, and shards, replicas share what they share without them.
TEST(Zero, BytesPerParameterAreThoseOfTheTableOnEveryMesh) {
  for (const char* mesh : {"pp=2,dp=2", "dp=2,tp=2", "pp=2,dp=2,tp=2"})
    for (const bool low : {false, true}) {
      train::Config config = shareable("gpt2");
      config.model.width = 32;
      config.model.ffn = 0;
      config.model.vocab = 64;
      config.model.context = 16;
      config.model.tie_embeddings = false;
      config.train.batch = config.train.micro_batch = 8;  // sums over several are f32
      config.train.precision = low ? "bf16" : "f32";
      train::resolve_model(config, 64);
      const Trained whole(over_mesh(config, mesh, 0));
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} zero={}{}", mesh, zero, low ? " bf16" : ""));
        const Trained trained(over_mesh(config, mesh, zero));
        const double share =
            (low ? std::vector<double>{10, 9, 8} : std::vector<double>{12, 10, 8})[static_cast<std::size_t>(zero - 1)] /
            16;
        int matrices = 0;
        ASSERT_EQ(trained.compiled().roles.size(), whole.compiled().roles.size());
        for (std::size_t r = 0; r < trained.compiled().roles.size(); ++r)
          for (const ir::State& state : whole.compiled().roles[r].module.states) {
            if (!state.trained || state.global_shape().rank() < 2) continue;
            EXPECT_EQ(persistent_bytes(trained.compiled().roles[r], state),
                      share * persistent_bytes(whole.compiled().roles[r], state))
                << state.name;
            ++matrices;
          }
        EXPECT_GE(matrices, 8);
      }
    }
}

}  // namespace
}  // namespace trireme::testing
