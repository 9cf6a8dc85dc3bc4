#include "trireme/planner/live_places.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/program/memory_plan.h"

namespace trireme::planner {
namespace {

// Activations of 10 blocks a layer wait for the backward phase, gradients of 15 a layer for the update, and the head
// needs 80 for itself: of few layers the peak is at the head, of many at the update.
program::Program layers(int count) {
  program::Program p;
  const auto instruction = [&](const std::string& name, ir::Phase phase) {
    program::Instruction i;
    i.name = name;
    i.phase = phase;
    p.instructions.push_back(i);
    return static_cast<std::int32_t>(p.instructions.size()) - 1;
  };
  const auto buffer = [&](std::size_t blocks, std::int32_t first, std::int32_t last) {
    program::Buffer b;
    b.bytes = blocks * program::kAlignment;
    b.first = first;
    b.last = last;
    p.buffers.push_back(b);
  };
  std::vector<std::int32_t> forward, backward;
  for (int i = 0; i < count; ++i) forward.push_back(instruction(fmt::format("blocks.{}.up", i), ir::Phase::forward));
  const std::int32_t head = instruction("head", ir::Phase::forward);
  buffer(80, head, head);
  for (int i = count; i-- > 0;)
    backward.push_back(instruction(fmt::format("blocks.{}.up.grad", i), ir::Phase::input_gradient));
  const std::int32_t update = instruction("update", ir::Phase::update);
  for (int i = 0; i < count; ++i) {
    buffer(10, forward[static_cast<std::size_t>(i)], backward[static_cast<std::size_t>(count - 1 - i)]);
    buffer(15, backward[static_cast<std::size_t>(i)], update);
  }
  program::plan_memory(p);
  return p;
}

TEST(LivePlaces, SayWhereManyLayersPeak) {
  const LivePlaces one = live_places(layers(6)), two = live_places(layers(7));
  for (const int count : {8, 12, 17, 40}) {
    const program::Program whole = layers(count);
    EXPECT_DOUBLE_EQ(extended_arena(one, two, count - 7), static_cast<double>(whole.lower_bound)) << count;
  }
  // The peak itself, extended, is what it would be if it stayed where it is.
  const auto peak = [](int count) { return static_cast<double>(layers(count).lower_bound); };
  EXPECT_LT(peak(7) + 33 * (peak(7) - peak(6)), peak(40));
}

}  // namespace
}  // namespace trireme::planner
