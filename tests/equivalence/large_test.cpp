// Things too large for 32 bits: planned and counted, without the memory that they would take.
#include <gtest/gtest.h>

#include <filesystem>

#include "equivalence/training.h"
#include "trireme/program/memory_plan.h"
#include "trireme/train/checkpoint.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

// An embedding of more than 2³¹ elements: buffers, offsets and sums of bytes are those of arithmetic in 64 bits.
TEST(Large, TensorsOfMoreElementsThanAnInt) {
  train::Config config = small_model("gpt2");
  config.model.vocab = 1'100'000;
  config.model.width = 2048;
  config.model.heads = 16;
  config.model.ffn = 0;
  config.model.layers = 1;
  config.model.context = 8;
  config.train.batch = 1;
  config.model.tie_embeddings = true;
  train::resolve_model(config, config.model.vocab);
  const train::Registry registry;
  const train::Compiled c = train::compile(config, registry, {});
  const train::Role& role = c.roles.front();
  const ir::State& table = role.module.state(role.module.find_state("wte.weight"));
  const auto elements = static_cast<std::uint64_t>(config.model.vocab * config.model.width);
  EXPECT_GT(elements, static_cast<std::uint64_t>(k2To31));
  EXPECT_EQ(static_cast<std::uint64_t>(table.global_shape().elements()), elements);
  EXPECT_GT(c.parameters(), elements);
  const program::Program& step = role.program("step");
  std::uint64_t over_4gib = 0;
  for (const program::Buffer& b : step.buffers) {
    EXPECT_LE(b.offset + b.bytes, step.arena_bytes) << b.name;
    over_4gib += b.bytes > std::uint64_t{4} << 30 ? 1 : 0;
  }
  EXPECT_GE(over_4gib, 3U);  // weights and the optimizer's two states
  // Weights and the optimizer's states of all parameters, at the least.
  EXPECT_GE(step.arena_bytes, 12 * c.parameters());
  EXPECT_LE(step.arena_bytes, 40 * c.parameters());
}

// Random choices of a step are its own, far beyond what 32 bits count.
TEST(Large, StepsBeyondAnInt) {
  train::Config config = small_model("gpt2");
  config.model.dropout = 0.3;
  const auto loss = [&](std::int64_t step) {
    Trained t(config);
    data::Batch batch = batch_of(config, 0);
    batch.step = step;
    const train::StepResult result = t.session().step(batch, step, 1e-3, config.train.seed);
    EXPECT_TRUE(result.finite) << step;
    return result.loss;
  };
  for (const std::int64_t step : {std::int64_t{5}, k2To31 + 5}) {
    EXPECT_EQ(loss(step), loss(step));
    EXPECT_NE(loss(step), loss(step + 2 * k2To31)) << "the step was cut to 32 bits";
  }
}

TEST(Large, CheckpointsOfStepsBeyondAnInt) {
  const std::filesystem::path run = std::filesystem::path(::testing::TempDir()) / "large_steps";
  std::filesystem::remove_all(run);
  const train::Config config = small_model("mlp");
  Trained first(config);
  first.train(2);
  train::save_checkpoint(run, first.session(), config, k2To31 + 3, 1);
  Trained second(config);
  train::load_checkpoint(run, k2To31 + 3, second.session());
  expect_same_state(first, second);
  std::filesystem::remove_all(run);
}

}  // namespace
}  // namespace trireme::testing
