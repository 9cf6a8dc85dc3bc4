// A step whose tensors leave for the disk and come back is the same step: to the bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "equivalence/training.h"
#include "trireme/planner/predict.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  std::string precision;
  int micro_batches;
  std::string offload;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* offload : {"activations", "optimizer", "weights", "weights,optimizer", "all"})
    for (const char* precision : {"f32", "bf16"})
      for (const int micro_batches : {1, 4}) all.push_back({"gpt2", precision, micro_batches, offload});
  for (const char* offload : {"activations", "all"})
    for (const int micro_batches : {1, 4}) all.push_back({"resnet18", "f32", micro_batches, offload});
  all.push_back({"resnet18", "bf16", 2, "all"});
  for (const char* name : {"llama", "mlp", "resnet50"}) all.push_back({name, "f32", 2, "all"});
  all.push_back({"convnet", "f32", 1, "all"});  // with less of a batch the staging is larger than what leaves
  return all;
}

class Offload : public ::testing::TestWithParam<Case> {};

TEST_P(Offload, TrainsToTheBitAndAsPlanned) {
  train::Config config = wider_model(GetParam().model);
  config.train.precision = GetParam().precision;
  config.train.micro_batch = config.train.batch / GetParam().micro_batches;
  Trained plain(config, {.threads = 2});
  config.memory.offload = GetParam().offload;
  config.memory.offload_policy = "all";
  Trained moved(config, {.threads = 2});
  plain.train(2);
  moved.train(2);
  expect_same_bits(plain, moved);

  const data::Batch rows = batch_of(config, 9);
  EXPECT_EQ(plain.session().evaluate(rows), moved.session().evaluate(rows));
  if (!reads_images(config)) {
    const auto tokens = std::span(rows.tokens).first(static_cast<std::size_t>(config.model.context));
    const auto a = plain.session().predict(tokens);
    const auto b = moved.session().predict(tokens);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
  EXPECT_EQ(moved.session().highest_offset(), moved.compiled().arena_bytes());
  EXPECT_EQ(moved.session().highest_offset(2), moved.compiled().tier_bytes(2));
  EXPECT_GT(moved.compiled().tier_bytes(2), 0U);
  EXPECT_EQ(plain.compiled().tier_bytes(2), 0U);
  EXPECT_LT(moved.compiled().arena_bytes(), plain.compiled().arena_bytes());
}

INSTANTIATE_TEST_SUITE_P(All, Offload, ::testing::ValuesIn(cases()), [](const auto& one) {
  std::string name = one.param.model + "_" + one.param.precision + "_" + std::to_string(one.param.micro_batches) + "_" +
                     one.param.offload;
  std::replace(name.begin(), name.end(), ',', '_');
  return name;
});

// Shards of weights that are elsewhere are updated, gathered and put back. Of three replicas no tensor's rows divide.
TEST(OffloadSharded, TrainsToTheBit) {
  for (const auto& [precision, zero] : {std::pair{"f32", 1}, {"f32", 2}, {"bf16", 1}}) {
    train::Config config = wider_model("gpt2");
    config.train.precision = precision;
    config.train.batch = 6;
    config.train.micro_batch = 3;
    config = over_mesh(config, "dp=3", zero);
    Trained plain(config);
    plain.train(2);
    for (const char* offload : {"weights", "all"}) {
      SCOPED_TRACE(fmt::format("{} zero={} {}", precision, zero, offload));
      config.memory.offload = offload;
      config.memory.offload_policy = "all";
      train::check(config);
      Trained moved(config);
      moved.train(2);
      expect_same_bits(plain, moved);
      EXPECT_EQ(moved.session().highest_offset(), moved.compiled().arena_bytes());
      EXPECT_GT(moved.compiled().tier_bytes(2), 0U);
      EXPECT_LT(moved.compiled().arena_bytes(), plain.compiled().arena_bytes());
    }
  }
}

std::size_t stores(const Trained& t) {
  std::size_t count = 0;
  for (const program::Instruction& i : t.role().program("step").instructions)
    count += i.kind == program::Instruction::Kind::store ? 1 : 0;
  return count;
}

TEST(OffloadPolicy, EachTrainsToTheBit) {
  train::Config config = wider_model("convnet");
  config.train.batch = 64;  // computing takes longer than copying
  Trained plain(config);
  config.memory.offload = "activations";
  std::vector<std::size_t> moved;
  plain.train(2);
  for (const char* policy : {"conv", "dynamic", "all"}) {
    config.memory.offload_policy = policy;
    Trained t(config);
    t.train(2);
    expect_same_bits(plain, t);
    moved.push_back(stores(t));
  }
  EXPECT_GT(moved[0], 0U);
  EXPECT_LT(moved[0], moved[2]);
  EXPECT_LE(moved[1], moved[2]);
}

// With a limit, as many leave as make it hold in the least time.
TEST(OffloadPolicy, DynamicFits) {
  train::Config config = wider_model("gpt2");
  config.train.batch = 16;
  const train::Registry registry;
  const auto planned = [&] { return train::make_plan(config, registry, {.threads = 1}); };
  const auto peak = [&](const train::Planned& p) { return train::compile(p, config, {}).arena_bytes(); };
  const std::size_t plain = peak(planned());
  config.memory.offload = "activations";
  EXPECT_FALSE(planned().choice);  // no limit
  config.memory.limit.count = 1;
  const train::Planned all = planned();
  const std::size_t least = peak(all);
  ASSERT_LT(least, plain);
  EXPECT_FALSE(all.choice->fits);
  // Which leave when so many do: the rest of the plan is the same.
  compiler::Compilation before(all.graphs);
  before.run_until(all.plan, "offload");
  const planner::OffloadPolicy policy{.activations = true, .which = planner::OffloadPolicy::Which::dynamic};
  for (const double share : {1.0, 0.7, 0.4, 0.1}) {
    config.memory.limit.count = least + static_cast<std::size_t>(share * static_cast<double>(plain - least));
    train::Planned fitting = planned();
    EXPECT_LE(peak(fitting), config.memory.limit.count) << share;
    EXPECT_EQ(fitting.plan.offload->activations.empty(), share == 1.0);
    const auto not_better = [&](std::size_t moved) {
      compiler::Plan other = fitting.plan;
      other.offload->activations = planner::activations_to_offload(before.module().graph("micro"), policy, moved);
      const program::Program step = before.step(other);
      EXPECT_TRUE(step.arena_bytes > config.memory.limit.count ||
                  planner::nominal_seconds(step) >= fitting.choice->trial.seconds)
          << share << ": " << moved;
    };
    for (std::size_t moved = 0; moved < fitting.choice->saving.moved; moved += 2) not_better(moved);
    not_better(all.choice->saving.moved);
  }
}

struct Composed {
  std::string model, precision, activations, remat;
};

TEST(OffloadComposition, WithRematerialisationCompressedActivationsAndFp16) {
  for (const Composed& c : {Composed{"gpt2", "f32", "bf16", "none"}, Composed{"gpt2", "fp16", "int8", "none"},
                            Composed{"gpt2", "f32", "full", "sqrt"}, Composed{"resnet18", "bf16", "full", "selective"},
                            Composed{"llama", "f32", "int8", "full"}}) {
    train::Config config = wider_model(c.model);
    config.train.precision = c.precision;
    config.memory.activations = c.activations;
    config.memory.remat = c.remat;
    Trained plain(config);
    config.memory.offload = "all";
    config.memory.offload_policy = "all";
    Trained moved(config);
    plain.train(2);
    moved.train(2);
    expect_same_bits(plain, moved);
    EXPECT_EQ(moved.session().highest_offset(), moved.compiled().arena_bytes());
  }
}

// The last of them has the head alone.
TEST(OffloadStages, OneWithoutConvolutionsOffloadsNoneOfTheirInputs) {
  train::Config config = wider_model("convnet");
  config.model.layers = 3;
  config.train.micro_batch = 4;
  config = over_mesh(config, "pp=4");
  Trained plain(config);
  config.memory.offload = "activations";
  config.memory.offload_policy = "conv";
  Trained moved(config);
  plain.train(2);
  moved.train(2);
  expect_same_bits(plain, moved);
  EXPECT_GT(moved.compiled().tier_bytes(2), 0U);
}

// The places along h recompute different values, and offload what none of them recomputes.
TEST(OffloadPlaces, WhatOneOfThemRecomputesNoneOffloads) {
  train::Config config = wider_model("convnet");
  config.model.layers = 3;
  config.train.batch = 12;
  config.train.micro_batch = 4;
  config.train.optimizer = "sgd";
  config.parallel.pipeline = "pipedream";
  config = over_mesh(config, "pp=2,h=3");
  Trained plain(config);
  config.memory.remat = "optimal";
  config.memory.offload = "all";
  config.memory.offload_policy = "all";
  Trained moved(config);
  plain.train(3);
  moved.train(3);
  expect_same_bits(plain, moved);
  EXPECT_GT(moved.compiled().tier_bytes(2), 0U);
}

}  // namespace
}  // namespace trireme::testing
