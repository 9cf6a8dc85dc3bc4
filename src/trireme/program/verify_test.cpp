#include "trireme/program/verify.h"

#include <gtest/gtest.h>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/program/lower.h"

namespace trireme::program {
namespace {

// A program for an accelerator as it is lowered, and what is found wrong with it after a change.
class VerifyTest : public ::testing::Test {
 protected:
  void lower_graph(const std::string& nodes) {
    const ir::Module module = ir::parse(
        "module {\n  mesh \"dp=2\"\n  graph micro {\n    input %x : f32[16]\n" + nodes + "  }\n}\n", registry);
    p = lower(module, lay_out(module), {.device = device::Kind::cuda});
  }

  std::string message() const {
    try {
      verify(p);
    } catch (const Error& e) {
      return e.message();
    }
    return "sound";
  }

  ir::Registry registry = testing::probe_registry();
  Program p;
};

constexpr const char* kThree = R"(
    %a = many(%x) : f32[16]
    %b = many(%x) : f32[16]
    %c = many(%x) : f32[16]
    output a = %a
    output b = %b
    output c = %c
)";

TEST_F(VerifyTest, OperandsNameBuffersAndLieInside) {
  lower_graph(kThree);
  EXPECT_EQ(message(), "sound");
  const Program good = p;
  p.instructions[1].inputs[0].buffer = 99;
  EXPECT_EQ(message(), "instruction 1 (many 'a', micro-batch 0) names buffer 99, which does not exist");
  p = good;
  p.instructions[1].outputs[0].offset = 4;
  EXPECT_EQ(message(), "instruction 1 (many 'a', micro-batch 0) reaches beyond buffer 'a' (68 of 64 bytes)");
  p = good;
  p.instructions[1].outputs[0].buffer = kNone;
  EXPECT_EQ(message(), "instruction 1 (many 'a', micro-batch 0) has an output without a buffer");
  p = good;
  p.outputs[0].operand.buffer = 99;
  EXPECT_EQ(message(), "output 'a' of micro-batch 0 has no buffer");
  p = good;
  p.instructions[1].inputs[0].place = {.axis = 3, .count = 1, .stride = 0};
  EXPECT_EQ(message(),
            "instruction 1 (many 'a', micro-batch 0) uses 'x' by the rank's place along an axis that the mesh 'dp=2' "
            "has not");
}

TEST_F(VerifyTest, ValuesAreNamedWhereTheyAre) {
  lower_graph("    %r = all_reduce(%x) {axis=\"dp\", parts=2, reduce=\"sum\"} : f32[16]\n    output r = %r\n");
  EXPECT_EQ(message(), "sound");
  ASSERT_FALSE(p.values.empty());
  const Program good = p;
  Instruction& reduce = p.instructions[1];
  for (const auto value : {static_cast<std::int32_t>(p.values.size()), -7}) {
    reduce.inputs[0].value = value;
    EXPECT_EQ(message(),
              fmt::format("instruction 1 (all_reduce 'r', micro-batch 0) names value {} of 'x', which does not exist",
                          value));
  }
  p = good;
  p.instructions[1].of.clear();
  EXPECT_EQ(message(),
            "instruction 1 (all_reduce 'r', micro-batch 0) names 0 of the 1 values that it makes with other ranks");
  p = good;
  p.instructions[0].of = {"x"};
  EXPECT_EQ(message(),
            "instruction 0 (input 'x', micro-batch 0) names 1 of the 0 values that it makes with other ranks");
}

TEST_F(VerifyTest, InstructionsHaveTheOpsAndStreamsTheyNeed) {
  lower_graph(kThree);
  const Program good = p;
  p.instructions[1].op = nullptr;
  EXPECT_EQ(message(), "instruction 1 'a' has no op");
  p = good;
  p.instructions[0].op = p.instructions[1].op;
  EXPECT_EQ(message(), "instruction 0 'x' has an op");
  p = good;
  p.instructions[2].stream = -1;
  EXPECT_EQ(message(), "instruction 2 (many 'b', micro-batch 0) is on stream -1");
}

TEST_F(VerifyTest, EventsAreRecordedOnceAndBeforeTheyAreWaitedFor) {
  lower_graph(kThree);
  p.launch_groups.clear();
  p.instructions[1].waits = {0};
  EXPECT_EQ(message(),
            "instruction 1 (many 'a', micro-batch 0) waits for event 0, which no instruction before it records");
  p.instructions[2].records = 0;
  EXPECT_EQ(message(),
            "instruction 1 (many 'a', micro-batch 0) waits for event 0, which no instruction before it records");
  p.instructions[0].records = 0;
  EXPECT_EQ(message(),
            "event 0 is recorded by instruction 0 (input 'x', micro-batch 0) and by instruction 2 (many 'b', "
            "micro-batch 0)");
  p.instructions[2].records = 1;
  EXPECT_EQ(message(), "sound");
}

TEST_F(VerifyTest, MembersOfALaunchGroupDoNotTouchEachOthersWrites) {
  lower_graph(kThree);
  ASSERT_EQ(p.launch_groups.size(), 1U);
  EXPECT_EQ(p.launch_groups[0].first, 1);
  EXPECT_EQ(p.launch_groups[0].last, 4);
  const Program good = p;
  p.instructions[3].inputs = {p.instructions[1].outputs[0]};
  EXPECT_EQ(message(),
            "instruction 3 (many 'c', micro-batch 0) touches what another instruction writes that is launched together "
            "with it, from instruction 1 (many 'a', micro-batch 0) on");
  p = good;
  // Two buffers at the same place.
  p.buffers[static_cast<std::size_t>(p.instructions[3].outputs[0].buffer)].offset =
      p.buffers[static_cast<std::size_t>(p.instructions[2].outputs[0].buffer)].offset;
  EXPECT_NE(message(), "sound");
  p = good;
  p.instructions[0].records = 0;
  p.instructions[2].waits = {0};
  EXPECT_EQ(
      message(),
      "instruction 2 (many 'b', micro-batch 0) is launched together with instruction 1 (many 'a', micro-batch 0), "
      "and waits for event 0");
  p = good;
  p.instructions[2].stream = 1;
  EXPECT_EQ(message(),
            "instruction 2 (many 'b', micro-batch 0) cannot be launched together with instruction 1 (many 'a', "
            "micro-batch 0)");
  p = good;
  p.launch_groups.push_back({3, 4});
  EXPECT_EQ(message(), "the launch group of instructions 3 to 3 is empty or overlaps the one before it");
}

TEST_F(VerifyTest, CaptureRegionsNeedNoHostAndNameTheEventsThatCrossThem) {
  std::string nodes;
  const auto chain = [&](const std::string& name, std::string from) {
    for (int k = 0; k < 9; ++k) {
      const std::string to = name + std::to_string(k);
      nodes += fmt::format("    %{} = single(%{}) : f32[16]\n", to, from);
      from = to;
    }
    return from;
  };
  const std::string before = chain("a", "x");
  nodes += "    %r = all_reduce(%" + before + ") {axis=\"dp\", parts=2, reduce=\"sum\"} : f32[16]\n";
  nodes += "    output y = %" + chain("b", "r") + "\n";
  lower_graph(nodes);
  EXPECT_EQ(message(), "sound");
  ASSERT_EQ(p.capture_regions.size(), 2U);
  const Program good = p;
  p.capture_regions[0].records.clear();
  EXPECT_EQ(
      message(),
      "instruction 10 (all_reduce 'r', micro-batch 0) waits for event 0, which its capture region does not record");
  p = good;
  p.capture_regions[1].waits.clear();
  EXPECT_EQ(
      message(),
      "instruction 11 (single 'b0', micro-batch 0) waits for event 1, which needs the host, and its capture region "
      "does not");
  p = good;
  p.capture_regions[1].first = 10;
  EXPECT_EQ(message(), "instruction 10 (all_reduce 'r', micro-batch 0) needs the host and is captured");
  p = good;
  p.capture_regions[1].first = 5;
  EXPECT_EQ(message(), "the capture region of instructions 5 to 19 is empty or overlaps the one before it");
}

}  // namespace
}  // namespace trireme::program
