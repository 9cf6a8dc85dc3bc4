// memory.limit with both ways to save: what is recomputed and what is offloaded are decided together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "equivalence/training.h"
#include "trireme/planner/predict.h"

namespace trireme::testing {
namespace {

struct Kind {
  std::string model;
  std::string offload;
};

class MemoryLimit : public ::testing::TestWithParam<Kind> {
 protected:
  // A deep model whose activations are most of what it holds.
  static train::Config deep_model(const std::string& name) {
    train::Config config = wider_model(name);
    config.train.batch = 16;
    config.train.micro_batch = 16;
    config.model.layers = 4;
    if (name == "mlp") {
      config.model.layers = 12;
      config.model.width = 64;
      config.model.image = 8;
      config.train.batch = config.train.micro_batch = 512;
    }
    return config;
  }
  static train::Compiled compiled(train::Config config, std::size_t limit, const std::string& remat,
                                  const std::string& offload) {
    config.memory.limit.count = limit;
    config.memory.remat = remat;
    config.memory.offload = offload;
    static const train::Registry registry;
    return train::compile(config, registry, {.threads = 2});
  }
};

TEST_P(MemoryLimit, BothTogetherAreNeverSlowerNorLarger) {
  const train::Config config = deep_model(GetParam().model);
  const std::string& offload = GetParam().offload;
  const std::size_t plain = compiled(config, 0, "none", "none").arena_bytes();
  const std::size_t least = compiled(config, 1, "optimal", offload).arena_bytes();
  ASSERT_LT(least, plain);
  int only_together = 0;
  for (const double share : {0.6, 0.25, 0.0}) {
    const std::size_t limit = least + static_cast<std::size_t>(share * static_cast<double>(plain - least));
    const train::Compiled both = compiled(config, limit, "optimal", offload);
    const double seconds = planner::nominal_seconds(both.roles.front().program("step"));
    EXPECT_LE(both.arena_bytes(), limit) << share;
    bool alone = false;
    for (const auto& [remat, moved] : {std::pair{"optimal", "none"}, std::pair{"none", offload.c_str()}}) {
      if (offload == "all" && moved == std::string("none")) continue;  // its states stay: another step
      const train::Compiled one = compiled(config, limit, remat, moved);
      if (one.arena_bytes() > limit) continue;
      alone = true;
      EXPECT_LE(seconds, planner::nominal_seconds(one.roles.front().program("step")))
          << share << " " << remat << " " << moved;
    }
    only_together += alone ? 0 : 1;
  }
  if (GetParam().model == "gpt2") {
    EXPECT_GT(only_together, 0);
  }
}

TEST_P(MemoryLimit, TrainsToTheBitAndAsPlanned) {
  train::Config config = deep_model(GetParam().model);
  const std::size_t plain_peak = compiled(config, 0, "none", "none").arena_bytes();
  const std::size_t least = compiled(config, 1, "optimal", GetParam().offload).arena_bytes();
  Trained plain(config, {.threads = 2});
  plain.train(2);
  config.memory.remat = "optimal";
  config.memory.offload = GetParam().offload;
  config.memory.limit.count = least + (plain_peak - least) / 8;
  Trained small(config, {.threads = 2});
  small.train(2);
  expect_same_bits(plain, small);
  EXPECT_EQ(small.session().highest_offset(), small.compiled().arena_bytes());
  EXPECT_LE(small.compiled().arena_bytes(), config.memory.limit.count);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryLimit,
                         ::testing::Values(Kind{"gpt2", "activations"}, Kind{"gpt2", "all"}, Kind{"mlp", "activations"},
                                           Kind{"convnet", "activations"}),
                         [](const auto& one) { return one.param.model + "_" + one.param.offload; });

// Weights and optimizer states leave only as far as they must.
TEST(MemoryLimitOfState, WhatThereIsRoomForStays) {
  train::Config config = wider_model("gpt2");
  config.model.layers = 4;
  static const train::Registry registry;
  const auto compiled = [&](const std::string& offload, std::size_t limit) {
    train::Config changed = config;
    changed.memory.offload = offload;
    changed.memory.limit.count = limit;
    return train::compile(changed, registry, {.threads = 2});
  };
  const std::size_t plain = compiled("none", 0).arena_bytes();
  for (const std::string offload : {"optimizer", "weights,optimizer"}) {
    const train::Compiled all = compiled(offload, 0);
    ASSERT_LT(all.arena_bytes(), plain);
    std::size_t before = all.tier_bytes(program::kDiskTier);
    for (const double share : {0.3, 0.6, 1.0}) {
      const auto limit =
          all.arena_bytes() + static_cast<std::size_t>(share * static_cast<double>(plain - all.arena_bytes()));
      const train::Compiled some = compiled(offload, limit);
      EXPECT_LE(some.arena_bytes(), limit) << offload << " " << share;
      EXPECT_LT(some.tier_bytes(program::kDiskTier), before) << offload << " " << share;
      before = some.tier_bytes(program::kDiskTier);
    }
    EXPECT_EQ(before, 0U) << "there is room for all of them";
    Trained whole(config, {.threads = 2});
    whole.train(2);
    config.memory.offload = offload;
    config.memory.limit.count = (all.arena_bytes() + plain) / 2;
    Trained half(config, {.threads = 2});
    half.train(2);
    expect_same_bits(whole, half);
    EXPECT_EQ(half.session().highest_offset(), half.compiled().arena_bytes());
    EXPECT_EQ(half.session().highest_offset(program::kDiskTier), half.compiled().tier_bytes(program::kDiskTier));
    config.memory = {};
  }
}

// The first stage holds the most micro-batches, and of stages that take equal time it needs the most. Under a limit
// that is too small for it, it has fewer layers.
TEST(MemoryLimitOfStages, CutsMoveWhereStagesOfEqualTimeDoNotFit) {
  for (const auto& [name, mesh, pipeline] : {std::tuple{"gpt2", "pp=2", "1f1b"},
                                             {"llama", "pp=3", "1f1b"},
                                             {"gpt2", "pp=2", "interleaved:2"},
                                             {"llama", "pp=3,dp=2", "1f1b"},
                                             {"llama", "pp=2", "pipedream"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", name, mesh, pipeline));
    train::Config plain = small_model(name);
    plain.model.layers = 8;
    plain.model.context = 64;
    plain.train.batch = 16;
    plain.train.micro_batch = 2;
    train::resolve_model(plain, plain.model.vocab);
    train::Config config = plain;
    config.parallel.pipeline = pipeline;
    config = over_mesh(config, mesh);
    static const train::Registry registry;
    const auto stages = [&](std::size_t limit) {
      train::Config limited = config;
      limited.memory.limit.count = limit;
      return train::compile(limited, registry, {});
    };
    const train::Compiled balanced = stages(0);
    std::size_t least = balanced.arena_bytes();
    for (const train::Role& role : balanced.roles) least = std::min(least, role.arena_bytes);
    const std::size_t limit = balanced.arena_bytes() - (balanced.arena_bytes() - least) / 4;
    ASSERT_LT(limit, balanced.arena_bytes());
    const train::Compiled moved = stages(limit);
    EXPECT_LE(moved.arena_bytes(), limit);
    EXPECT_NE(moved.plan.stage_cuts, balanced.plan.stage_cuts);
    // Room for both: the cuts stay.
    EXPECT_EQ(stages(balanced.arena_bytes()).plan.stage_cuts, balanced.plan.stage_cuts);
    config.memory.limit.count = limit;
    if (std::string(pipeline) != "pipedream") expect_like_one_rank(plain, config);
  }
}

// Layers that are asked for stay where they are.
TEST(MemoryLimitOfStages, GivenLayersDoNotMove) {
  train::Config config = small_model("llama");
  config.model.layers = 8;
  config.train.batch = 16;
  config.train.micro_batch = 2;
  config.parallel.stages = {4, 4};
  config = over_mesh(config, "pp=2");
  static const train::Registry registry;
  const train::Compiled free = train::compile(config, registry, {});
  config.memory.limit.count = free.arena_bytes() - 1;
  const train::Compiled limited = train::compile(config, registry, {});
  EXPECT_EQ(limited.plan.stage_cuts, free.plan.stage_cuts);
  EXPECT_EQ(limited.arena_bytes(), free.arena_bytes());
}

}  // namespace
}  // namespace trireme::testing
