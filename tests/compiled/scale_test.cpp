// Real models at size: how good the memory plan is, and how long making it takes. Nothing is run.
#include <gtest/gtest.h>

#include <ctime>

#include "support/probe_ops.h"
#include "trireme/program/check.h"
#include "trireme/program/lifetimes.h"
#include "trireme/program/lower.h"
#include "trireme/program/memory_plan.h"
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

// The step of a deep transformer by hand, one forward one backward: `in_flight` micro-batches have saved their
// activations at once, and the oldest of them gives its up first.
class Interleaved {
 public:
  Interleaved(int layers, int micro_batches, int in_flight) : layers_(layers), saved_(index(micro_batches)) {
    for (int m = 0; m < micro_batches + in_flight - 1; ++m) {
      if (m < micro_batches) forward(m);
      if (m >= in_flight - 1) backward(m - in_flight + 1);
    }
    p.micro_batches = micro_batches;
    find_lifetimes(p);
  }

  Program p;

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  // In units of a layer's output.
  BufferId made(std::int64_t units, const std::vector<BufferId>& from, int micro) {
    const TensorType type{DType::f32, {units * 1000}};
    Instruction i;
    i.op = &registry_.at("together");
    i.attributes.set("elements", units * 1000);
    i.name = "value";
    i.micro = micro;
    for (const BufferId b : from) i.inputs.push_back({b, types_[static_cast<std::size_t>(b)]});
    if (from.empty()) i.kind = Instruction::Kind::input;
    i.outputs = {{add(type, Category::activations), type}};
    const BufferId out = i.outputs.front().buffer;
    const TensorType scratch{DType::u8, {4096}};
    if (!from.empty()) i.workspace = {add(scratch, Category::workspace), scratch};
    p.instructions.push_back(std::move(i));
    return out;
  }

  BufferId add(const TensorType& type, Category category) {
    p.buffers.push_back({"value", type.bytes(), 0, category, kNone, kNone, kNone});
    types_.push_back(type);
    return static_cast<BufferId>(p.buffers.size()) - 1;
  }

  void forward(int m) {
    BufferId x = made(1, {}, m);
    for (int l = 0; l < layers_; ++l) {
      const BufferId norm = made(1, {x}, m);
      const BufferId qkv = made(3, {norm}, m);
      const BufferId attention = made(1, {qkv}, m);
      const BufferId middle = made(1, {x, made(1, {attention}, m)}, m);
      const BufferId norm2 = made(1, {middle}, m);
      const BufferId up = made(4, {norm2}, m);
      const BufferId act = made(4, {up}, m);
      saved_[index(m)].push_back({x, norm, qkv, attention, middle, norm2, up, act});
      x = made(1, {middle, made(1, {act}, m)}, m);
    }
    saved_[index(m)].push_back({x});
  }

  void backward(int m) {
    auto& saved = saved_[index(m)];
    BufferId d = made(1, {made(64, saved.back(), m)}, m);
    saved.pop_back();
    for (; !saved.empty(); saved.pop_back()) {
      const std::vector<BufferId>& s = saved.back();
      const BufferId d_act = made(4, {d}, m);
      made(16, {d, s[7]}, m);  // a weight's gradient
      const BufferId d_up = made(4, {d_act, s[6]}, m);
      made(16, {d_up, s[5]}, m);
      const BufferId d_middle = made(1, {d, made(1, {made(1, {d_up}, m), s[4]}, m)}, m);
      const BufferId d_attention = made(1, {d_middle}, m);
      made(4, {d_middle, s[3]}, m);
      const BufferId d_qkv = made(3, {d_attention, s[2]}, m);
      made(12, {d_qkv, s[1]}, m);
      d = made(1, {d_middle, made(1, {made(1, {d_qkv}, m), s[0]}, m)}, m);
    }
  }

  ir::Registry registry_ = testing::probe_registry();
  int layers_;
  std::vector<std::vector<std::vector<BufferId>>> saved_;  // by micro-batch and layer
  std::vector<TensorType> types_;
};

// Of this process: others on the machine do not count.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A second or two where every buffer is not compared with every other; with that, a minute at least.
TEST(Scale, InterleavedMicroBatchesArePlannedAndCheckedInTime) {
  Interleaved step(96, 64, 4);
  ASSERT_GT(step.p.instructions.size(), 140000U);
  ASSERT_GT(step.p.buffers.size(), 280000U);
  const double begin = cpu_seconds();
  find_lifetimes(step.p);
  plan_memory(step.p);
  check(step.p);
  EXPECT_LT(cpu_seconds() - begin, 10);
  EXPECT_LE(plan_ratio(step.p), 1.01);
}

// What one stage of sixteen has of it.
TEST(Scale, AStageOfAPipelineStaysTight) {
  for (const int in_flight : {1, 2, 16}) {
    Interleaved step(6, 64, in_flight);
    plan_memory(step.p);
    check(step.p);
    EXPECT_LE(plan_ratio(step.p), 1.01) << in_flight;
  }
}

}  // namespace
}  // namespace trireme::program
