// The memory plan, measured: what it says is dead is never read again, and nothing is written beyond its buffer.
#include <gtest/gtest.h>

#include "equivalence/training.h"
#include "support/guarded_memory.h"
#include "support/planted.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  std::string mesh = "dp=1";
  int zero = 0;
  std::string precision = "f32";
  std::string remat = "none";
  bool micro_batches = false;
};

train::Config config_of(const Case& c) {
  train::Config config = over_mesh(small_model(c.model), c.mesh, c.zero);
  config.train.precision = c.precision;
  config.memory.remat = c.remat;
  if (c.micro_batches) config.train.micro_batch = 1;
  return config;
}

class GuardedMemory : public ::testing::TestWithParam<Case> {};

// Spoilt as soon as the plan lets go of them, buffers are missed by nobody: not a bit differs.
TEST_P(GuardedMemory, TrainsAsWithout) {
  const train::Config config = config_of(GetParam());
  Guards guards;
  Trained plain(config);
  Trained guarded(config, {.rework = [&](train::Compiled& c) { guards = guard_memory(c); }});
  EXPECT_GT(guards.canaries, 50U);
  EXPECT_GT(guards.poisoned, 20U);
  plain.train(3);
  guarded.train(3);
  expect_same_bits(plain, guarded);
  const data::Batch rows = batch_of(config, 9);
  EXPECT_EQ(plain.session().evaluate(rows).loss, guarded.session().evaluate(rows).loss);
}

INSTANTIATE_TEST_SUITE_P(All, GuardedMemory,
                         ::testing::Values(Case{"gpt2"}, Case{"llama", "dp=1", 0, "bf16", "none", true}, Case{"mlp"},
                                           Case{"convnet"}, Case{"resnet18"}, Case{"gpt2", "dp=1", 0, "f32", "full"},
                                           Case{"gpt2", "dp=2", 0, "f32", "none", true}, Case{"gpt2", "dp=2", 1},
                                           Case{"llama", "dp=2", 3, "bf16"}, Case{"convnet", "dp=2", 2},
                                           Case{"gpt2", "tp=2"}, Case{"gpt2", "pp=2", 0, "f32", "none", true},
                                           Case{"convnet", "h=2"}, Case{"convnet", "dp=2,h=3", 3},
                                           Case{"resnet18", "w=2"}, Case{"llama", "dp=2,tp=2", 3},
                                           Case{"gpt2", "pp=2,tp=2", 0, "bf16", "full"}));

// A launch of the step whose output lies between two other buffers that are alive.
program::Instruction& launch_amid(train::Compiled& compiled) {
  for (program::Program& p : compiled.roles.front().programs) {
    if (p.name != "step") continue;
    for (program::Instruction& i : p.instructions) {
      if (i.kind != program::Instruction::Kind::launch || i.outputs.empty() || i.stream != 0) continue;
      const program::Buffer& own = p.buffers[static_cast<std::size_t>(i.outputs.front().buffer)];
      const auto at = static_cast<std::int32_t>(&i - p.instructions.data());
      const bool whole = i.outputs.front().offset == 0 && i.outputs.front().type.bytes() == own.bytes;
      const auto alive = [&](const program::Buffer& b) { return b.first <= at && b.last >= at && b.state < 0; };
      const auto touches = [&](std::size_t end, std::size_t begin) { return end <= begin && begin - end < 64; };
      const bool before = std::any_of(p.buffers.begin(), p.buffers.end(), [&](const program::Buffer& b) {
        return alive(b) && touches(b.offset + b.bytes, own.offset);
      });
      const bool behind = std::any_of(p.buffers.begin(), p.buffers.end(), [&](const program::Buffer& b) {
        return alive(b) && touches(own.offset + own.bytes, b.offset);
      });
      if (own.state == program::kNone && whole && before && behind) return i;
    }
  }
  fail("no buffer lies between two others");
}

TEST(PlantedFault, AByteBehindABufferIsFound) {
  const train::Config config = config_of({"gpt2"});
  std::shared_ptr<const ir::OpDef> faulty;
  Trained t(config, {.rework = [&](train::Compiled& c) {
              faulty = plant(launch_amid(c), [](const device::Launch& launch, std::size_t bytes) {
                launch.out<std::byte>(0)[bytes] ^= std::byte{1};
              });
              guard_memory(c);
            }});
  try {
    t.step();
    FAIL() << "nobody noticed";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("byte 0 behind its end was written"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("canary of "), std::string::npos) << e.message();
  }
}

// The plan lets go of an activation after the forward phase, and the backward phase reads it all the same.
TEST(PlantedFault, ABufferThatIsReadAfterItsEndIsFound) {
  const train::Config config = config_of({"gpt2"});
  const auto shorten = [&](train::Compiled& c) {
    for (program::Program& p : c.roles.front().programs) {
      if (p.name != "step") continue;
      for (program::Buffer& b : p.buffers) {
        if (b.category != program::Category::activations || b.state != program::kNone || b.first < 0) continue;
        const auto is_float = [&](std::int32_t i) {
          const program::Instruction& at = p.instructions[static_cast<std::size_t>(i)];
          return !at.outputs.empty() && at.outputs.front().type.dtype == DType::f32;
        };
        const auto phase = [&](std::int32_t i) { return p.instructions[static_cast<std::size_t>(i)].phase; };
        if (is_float(b.first) && phase(b.first) == ir::Phase::forward && phase(b.last) != ir::Phase::forward) {
          b.last = b.first + 1;
          return;
        }
      }
    }
    fail("nothing is kept for the backward phase");
  };
  Trained t(config, {.rework = [&](train::Compiled& c) {
              shorten(c);
              guard_memory(c);
            }});
  EXPECT_FALSE(t.step().finite) << "nobody noticed";
}

}  // namespace
}  // namespace trireme::testing
