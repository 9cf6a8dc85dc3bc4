#include <gtest/gtest.h>

#include <numeric>

#include "support/probe_ops.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/ir/print.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"
#include "trireme/runtime/executor.h"

// Inputs that come to a GPU while the run before computes. They need a GPU.
namespace trireme::runtime {
namespace {

constexpr std::size_t kPixels = std::size_t{1} << 16;

class GpuExpectedInput : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda::gpus().empty()) GTEST_SKIP() << "no GPU here";
    module = ir::parse(R"(module {
  state @w : f32[65536] trained
  graph micro {
    input %x : f32[65536]
    %a0 = add(%x, @w) : f32[65536]
    %a1 = add(%a0, @w) : f32[65536]
    %a2 = add(%a1, @w) : f32[65536]
    %a3 = add(%a2, @w) : f32[65536]
    %a4 = add(%a3, @w) : f32[65536]
    %a5 = add(%a4, @w) : f32[65536]
    %a6 = add(%a5, @w) : f32[65536]
    %a7 = add(%a6, @w) : f32[65536]
    %a8 = add(%a7, @w) : f32[65536]
    output y = %a8
  }
}
)",
                       registry);
    program = program::lower(module, program::lay_out(module), {.device = device::Kind::cuda});
    program::check(program);
    ASSERT_FALSE(program.capture_regions.empty());
    arena = std::make_unique<device::Arena>(program.arena_bytes, device::Kind::cuda);
    arena->write(0, std::vector<std::byte>(program.state_bytes));
    for (auto& block : blocks) block = std::make_unique<device::HostBlock>(device::Kind::cuda, kPixels * sizeof(float));
    executor = std::make_unique<Executor>(program, *arena, pool);
  }

  std::span<float> batch(int number) {
    return {reinterpret_cast<float*>(blocks[static_cast<std::size_t>(number) % blocks.size()]->data()), kPixels};
  }
  void fill(int number) {
    const auto to = batch(number);
    std::iota(to.begin(), to.end(), static_cast<float>(number) * 7);
  }
  // The first value of what a run gives; the others count on from it.
  float run(std::span<const float> data, std::int64_t step, std::span<const float> next = {},
            std::int64_t next_step = kNoStep) {
    executor->bind("x", 0, data, step);
    if (!next.empty()) executor->expect("x", 0, std::as_bytes(next), next_step);
    executor->run();
    const auto bytes = executor->output("y");
    const auto* y = reinterpret_cast<const float*>(bytes.data());
    for (std::size_t i = 0; i < kPixels; ++i)
      if (y[i] != y[0] + static_cast<float>(i)) return -1;
    return y[0];
  }

  ir::Registry registry = testing::probe_registry();
  ir::Module module;
  program::Program program;
  ThreadPool pool{1};
  std::unique_ptr<device::Arena> arena;
  std::array<std::unique_ptr<device::HostBlock>, 3> blocks;
  std::unique_ptr<Executor> executor;
};

TEST_F(GpuExpectedInput, EveryRunReadsItsOwnBatch) {
  fill(0);
  for (int step = 0; step < 12; ++step) {
    fill(step + 1);
    EXPECT_EQ(run(batch(step), step, batch(step + 1), step + 1), static_cast<float>(step) * 7);
  }
}

// What was copied is what is read: the host's memory may have changed since.
TEST_F(GpuExpectedInput, ItComesDuringTheRunBefore) {
  fill(0);
  fill(1);
  for (int round = 0; round < 3; ++round) run(batch(0), 0);  // from the second on, runs are replayed
  run(batch(0), 0, batch(1), 1);
  const auto changed = batch(1);
  std::iota(changed.begin(), changed.end(), 1000.0F);
  EXPECT_EQ(run(batch(1), 1), 7);
  EXPECT_EQ(run(batch(1), 1), 1000);  // it was for one run alone
}

// A loader fills its blocks again and again: that a batch lies where another was expected says nothing.
TEST_F(GpuExpectedInput, AnotherStepAtTheSameAddressIsNotTheOneExpected) {
  fill(0);
  fill(1);
  for (int round = 0; round < 3; ++round) run(batch(0), 0);
  run(batch(0), 0, batch(1), 1);
  const auto changed = batch(1);
  std::iota(changed.begin(), changed.end(), 1000.0F);
  EXPECT_EQ(run(batch(1), 2), 1000);
}

TEST_F(GpuExpectedInput, AnotherBatchThanExpectedIsReadToo) {
  for (const int number : {0, 1, 2}) fill(number);
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(run(batch(0), 0, batch(1), 1), 0);
    EXPECT_EQ(run(batch(2), 2), 14);
    EXPECT_EQ(run(batch(1), 1, batch(1), 1), 7);
  }
}

// Ordinary memory is read when its run begins.
TEST_F(GpuExpectedInput, MemoryThatTheDeviceCannotReadIsNotExpected) {
  std::vector<float> ordinary(kPixels);
  std::iota(ordinary.begin(), ordinary.end(), 3.0F);
  for (int round = 0; round < 4; ++round) EXPECT_EQ(run(ordinary, 1, ordinary, 1), 3);
}

}  // namespace
}  // namespace trireme::runtime
