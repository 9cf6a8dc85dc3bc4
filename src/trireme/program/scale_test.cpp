// Real models at size: how good the memory plan is, and how long making it takes. Nothing is run.
#include <gtest/gtest.h>

#include "trireme/program/lower.h"
#include "trireme/train/compile.h"

namespace trireme::program {
namespace {

train::Compiled compiled(train::Config config, const train::Registry& registry) {
  train::resolve_model(config, config.model.vocab, registry.models);
  return train::compile(config, registry, {.threads = 2});
}

train::Config gpt2(std::int64_t layers, std::int64_t batch, std::int64_t micro_batch) {
  train::Config c;
  c.model.family = "gpt2";
  c.model.layers = static_cast<int>(layers);
  c.model.width = 768;
  c.model.heads = 12;
  c.model.context = 256;
  c.model.vocab = 50257;
  c.train.batch = batch;
  c.train.micro_batch = micro_batch;
  return c;
}

// Of what the plan decides about: the state before it has its place anyway.
double plan_ratio(const Program& p) {
  return static_cast<double>(p.arena_bytes - p.state_bytes) / static_cast<double>(p.lower_bound - p.state_bytes);
}

TEST(Scale, Gpt2PlanIsNearItsLowerBound) {
  const train::Registry registry;
  for (const char* precision : {"f32", "bf16"}) {
    train::Config config = gpt2(12, 8, 4);
    config.train.precision = precision;
    const train::Compiled c = compiled(config, registry);
    EXPECT_LE(plan_ratio(c.roles.front().program("step")), 1.05) << precision;
    EXPECT_LE(plan_ratio(c.roles.front().program("eval")), 1.05) << precision;
  }
}

TEST(Scale, ResNet50PlanIsNearItsLowerBound) {
  const train::Registry registry;
  train::Config config;
  config.model.family = "resnet";
  config.model.layers = 50;
  config.model.width = 64;
  config.model.image = 224;
  config.model.classes = 1000;
  config.train.batch = 8;
  const train::Compiled c = compiled(config, registry);
  EXPECT_LE(plan_ratio(c.roles.front().program("step")), 1.05);
  EXPECT_LE(plan_ratio(c.roles.front().program("eval")), 1.05);
}

TEST(Scale, DeepModelsWithManyMicroBatchesStayTight) {
  const train::Registry registry;
  const train::Compiled c = compiled(gpt2(48, 8, 1), registry);
  ASSERT_EQ(c.roles.front().program("step").micro_batches, 8);
  EXPECT_LE(plan_ratio(c.roles.front().program("step")), 1.05);
}

}  // namespace
}  // namespace trireme::program
