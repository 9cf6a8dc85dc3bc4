#include "trireme/planner/replay.h"

#include <gtest/gtest.h>

#include "trireme/ops/all.h"

namespace trireme::planner {
namespace {

// x → gelu → gelu, of a large and a small tensor; and an input.
TEST(Replay, TimesEveryLaunchOfAProgramInItsPlace) {
  const ir::Registry registry = ops::builtin();
  program::Program p;
  p.threads = 1;
  const auto buffer = [&](std::int64_t elements) {
    program::Buffer b;
    b.bytes = static_cast<std::size_t>(elements) * sizeof(float);
    b.offset = p.arena_bytes;
    p.arena_bytes += program::aligned(b.bytes);
    p.buffers.push_back(b);
    return program::Operand{static_cast<program::BufferId>(p.buffers.size()) - 1, {DType::f32, {elements}}};
  };
  const auto gelu = [&](std::int64_t elements) {
    program::Instruction i;
    i.op = &registry.at("gelu");
    for (const ir::AttributeSpec& spec : i.op->attributes) i.attributes.set(spec.name, spec.fallback);
    i.inputs = {buffer(elements)};
    i.outputs = {buffer(elements)};
    p.instructions.push_back(i);
  };
  program::Instruction input;
  input.kind = program::Instruction::Kind::input;
  input.outputs = {buffer(16)};
  p.instructions.push_back(input);
  gelu(1 << 18);
  gelu(1 << 10);
  for (const int copies : {1, 2}) {
    const std::vector<double> seconds = replayed_seconds(p, copies, 0.01);
    ASSERT_EQ(seconds.size(), 3U);
    EXPECT_EQ(seconds[0], 0);
    EXPECT_GT(seconds[1], seconds[2]);
    EXPECT_GT(seconds[2], 0);
  }
}

}  // namespace
}  // namespace trireme::planner
