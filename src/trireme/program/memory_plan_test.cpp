#include "trireme/program/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/probe_ops.h"
#include "trireme/core/rng.h"
#include "trireme/ir/builder.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"

namespace trireme::program {
namespace {

// Buffers of random sizes and lifetimes over empty instructions.
Program random_program(std::uint64_t seed, std::size_t instructions, std::size_t count) {
  SplitMix random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.next() % n); };
  Program p;
  p.instructions.resize(instructions);
  for (std::size_t s = 0; s < below(4); ++s) {
    p.buffers.push_back({"state", 1 + below(1000), p.state_bytes, static_cast<Category>(below(3)),
                         static_cast<ir::StateId>(s), kNone, kNone});
    p.state_bytes += aligned(p.buffers.back().bytes);
  }
  for (std::size_t i = 0; i < count; ++i) {
    Buffer b;
    b.name = "b" + std::to_string(i);
    const std::size_t kind = below(10);
    b.bytes = kind == 0 ? 0 : kind < 6 ? 1 + below(200) : 1 + below(20000);
    b.category = static_cast<Category>(below(kCategories));
    if (below(8) == 0) {
      b.alignment = kPage;
      b.bytes = aligned(b.bytes, kPage);
    }
    if (below(20) != 0) {
      b.first = static_cast<std::int32_t>(below(instructions));
      const std::size_t life = below(5) == 0 ? below(instructions) : below(6);
      b.last = static_cast<std::int32_t>(std::min(instructions - 1, static_cast<std::size_t>(b.first) + life));
    }
    p.buffers.push_back(b);
  }
  return p;
}

bool placed(const Buffer& b) { return b.bytes > 0 && (b.state != kNone || b.first != kNone); }

bool alive_together(const Buffer& a, const Buffer& b) {
  return a.state != kNone || b.state != kNone || (a.first <= b.last && b.first <= a.last);
}

TEST(MemoryPlan, RandomProgramsHoldTheirPromises) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix random(seed * 77);
    Program p = random_program(seed, 1 + random.next() % 60, 1 + random.next() % 80);
    plan_memory(p);
    for (const Buffer& a : p.buffers) {
      if (!placed(a)) continue;
      EXPECT_EQ(a.offset % a.alignment, 0U);
      EXPECT_LE(a.offset + a.bytes, p.arena_bytes);
      EXPECT_TRUE(a.state != kNone || a.offset >= p.state_bytes);
      for (const Buffer& b : p.buffers) {
        if (&a == &b || !placed(b) || !alive_together(a, b)) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << a.name << " and " << b.name;
      }
    }
    EXPECT_GE(p.arena_bytes, p.lower_bound);
    EXPECT_GE(p.lower_bound, p.state_bytes);
    const std::vector<std::size_t> live = live_bytes(p);
    EXPECT_EQ(*std::max_element(live.begin(), live.end()), p.lower_bound);
    const PeakReport report = peak(p);
    EXPECT_EQ(report.bytes, p.arena_bytes);
    EXPECT_EQ(std::accumulate(report.categories.begin(), report.categories.end(), report.padding), p.arena_bytes);
    EXPECT_EQ(live[static_cast<std::size_t>(report.instruction)], p.lower_bound);
    for (std::size_t i = 1; i < report.largest.size(); ++i)
      EXPECT_GE(p.buffers[static_cast<std::size_t>(report.largest[i - 1])].bytes,
                p.buffers[static_cast<std::size_t>(report.largest[i])].bytes);
  }
}

// On average: one such program may be hard.
TEST(MemoryPlan, RandomProgramsAreNearTheirLowerBound) {
  double sum = 0;
  constexpr int programs = 50;
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    Program p = random_program(seed, 300, 1000);
    plan_memory(p);
    sum += static_cast<double>(p.arena_bytes - p.state_bytes) / static_cast<double>(p.lower_bound - p.state_bytes);
  }
  EXPECT_LE(sum / programs, 1.05);
}

TEST(MemoryPlan, AStackOfActivationsIsPacked) {
  Program p;
  constexpr int layers = 20;
  p.instructions.resize(2 * layers);
  for (int i = 0; i < layers; ++i) {
    p.buffers.push_back({"saved", 6400, 0, Category::activations, kNone, i, 2 * layers - 1 - i});
    p.buffers.push_back({"scratch", 1280, 0, Category::workspace, kNone, i, i});
    p.buffers.push_back({"scratch", 1280, 0, Category::workspace, kNone, 2 * layers - 1 - i, 2 * layers - 1 - i});
  }
  plan_memory(p);
  EXPECT_EQ(p.arena_bytes, p.lower_bound);
}

TEST(MemoryPlan, EmptyProgram) {
  Program p;
  p.state_bytes = 128;
  plan_memory(p);
  EXPECT_EQ(p.arena_bytes, 128U);
  EXPECT_EQ(p.lower_bound, 128U);
  EXPECT_EQ(peak(p).padding, 128U);
}

// Without a backward pass each layer's result dies with the next: depth costs nothing but weights.
std::size_t transient_bytes(int layers) {
  const ir::Registry registry = testing::probe_registry();
  ir::Module module;
  module.registry = &registry;
  const ir::Builder b(module, "micro");
  ir::Value x = b.input("x", {DType::f32, {32, 64}});
  for (int i = 0; i < layers; ++i) {
    const ir::Builder layer = b.scope("layers", i);
    x = ir::apply1(
        "matmul", {layer.here(x), layer.parameter("weight", {64, 64}, ir::Init::normal(0.1)), layer.bias("bias", {64})},
        {{"trans_b", true}});
    x = ir::apply1("relu", {x});
  }
  b.output("y", x);
  const Program p = lower(module, lay_out(module), {});
  check(p);
  return p.arena_bytes - p.state_bytes;
}

TEST(MemoryPlan, InferenceNeedsConstantMemory) { EXPECT_EQ(transient_bytes(400), transient_bytes(4)); }

}  // namespace
}  // namespace trireme::program
