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

TEST_F(VerifyTest, FirstNumbersThatDoNotExist) {
  lower_graph(kThree);
  const Program good = p;
  const auto buffers = static_cast<BufferId>(p.buffers.size());
  for (const BufferId id : {buffers, -5}) {
    p = good;
    p.instructions[1].inputs[0].buffer = id;
    EXPECT_EQ(message(),
              fmt::format("instruction 1 (many 'a', micro-batch 0) names buffer {}, which does not exist", id));
    p = good;
    p.instructions[1].workspace = p.instructions[1].inputs[0];
    p.instructions[1].workspace.buffer = id;
    EXPECT_EQ(message(),
              fmt::format("instruction 1 (many 'a', micro-batch 0) names buffer {}, which does not exist", id));
    p = good;
    p.outputs[0].operand.buffer = id;
    EXPECT_EQ(message(), "output 'a' of micro-batch 0 has no buffer");
  }
  p = good;
  p.instructions[1].inputs[0].place = {.axis = 1, .count = 1, .stride = 0};
  EXPECT_NE(message().find("along an axis that the mesh 'dp=2' has not"), std::string::npos) << message();
  p = good;
  p.instructions[1].waits = {-1};
  EXPECT_EQ(message(),
            "instruction 1 (many 'a', micro-batch 0) waits for event -1, which no instruction before it records");
}

// A program made by hand need not say which values it makes.
TEST_F(VerifyTest, WithoutValuesCollectivesNameNone) {
  lower_graph("    %r = all_reduce(%x) {axis=\"dp\", parts=2, reduce=\"sum\"} : f32[16]\n    output r = %r\n");
  p.values.clear();
  for (Instruction& i : p.instructions) {
    i.of.clear();
    for (auto* operands : {&i.inputs, &i.outputs})
      for (Operand& o : *operands) o.value = kNone;
  }
  EXPECT_EQ(message(), "sound");
}

TEST_F(VerifyTest, LaunchGroupsAreOfWhatCanBeGrouped) {
  lower_graph(kThree);
  const Program good = p;
  const std::string apart =
      "instruction 2 ({} 'b', micro-batch 0) cannot be launched together with instruction 1 (many 'a', micro-batch 0)";
  // Another op; one whose kernel cannot; one without a kernel for this device; one on the host.
  for (const char* op : {"many_in_place", "single", "probe"}) {
    p = good;
    p.instructions[2].op = &registry.at(op);
    EXPECT_EQ(message(), fmt::format(fmt::runtime(apart), op));
  }
  p = good;
  p.instructions[2].on_host = true;
  EXPECT_EQ(message(), fmt::format(fmt::runtime(apart), "many"));
  for (const char* op : {"single", "probe"}) {
    p = good;
    for (std::size_t i = 1; i < 4; ++i) p.instructions[i].op = &registry.at(op);
    EXPECT_NE(message().find("cannot be launched together with"), std::string::npos) << message();
  }
  p = good;
  p.launch_groups = {{3, 3}};
  EXPECT_EQ(message(), "the launch group of instructions 3 to 2 is empty or overlaps the one before it");
  p.launch_groups = {{1, 5}};
  EXPECT_EQ(message(), "the launch group of instructions 1 to 4 is empty or overlaps the one before it");
  p.launch_groups = {{1, 2}, {2, 4}};
  EXPECT_EQ(message(), "sound");
}

// What the members of a group read and write, byte for byte: buffers that lie over each other.
class GroupedBytes : public VerifyTest {
 protected:
  // Three launches of one op; the first reads and writes as given, by offsets in one buffer.
  struct Touches {
    std::size_t read;
    std::size_t written;
    std::size_t bytes = 64;
    std::size_t workspace = 0;
  };
  std::string grouped(const std::vector<Touches>& all, const char* op = "many") {
    p = {};
    p.device = device::Kind::cuda;
    p.mesh = ir::parse_mesh("dp=2");
    p.buffers.push_back({.name = "x", .bytes = 4096});
    for (const Touches& t : all) {
      const TensorType type{DType::f32, {static_cast<std::int64_t>(t.bytes / 4)}};
      Instruction i;
      i.name = "a";
      i.op = &registry.at(op);
      i.inputs = {{0, type, t.read}, {}};
      i.outputs = {{0, type, t.written}};
      if (t.workspace > 0) i.workspace = {0, {DType::u8, {64}}, t.workspace};
      p.instructions.push_back(i);
    }
    p.launch_groups = {{0, static_cast<std::int32_t>(all.size())}};
    const std::string found = message();
    return found.find("touches what another instruction writes") != std::string::npos ? "meets" : found;
  }
};

TEST_F(GroupedBytes, ThatMeetAreFound) {
  EXPECT_EQ(grouped({{0, 1024}, {0, 1088}, {64, 1152}}), "sound");
  EXPECT_EQ(grouped({{0, 1024}, {128, 0}}), "meets");      // written after it was read,
  EXPECT_EQ(grouped({{0, 1024}, {1024, 2048}}), "meets");  // read after it was written,
  EXPECT_EQ(grouped({{0, 1024}, {128, 1024}}), "meets");   // and written twice
  EXPECT_EQ(grouped({{128, 1024}, {0, 64}}), "sound");     // ends where the other begins
  EXPECT_EQ(grouped({{0, 1024}, {128, 64}}), "sound");
  EXPECT_EQ(grouped({{0, 1024}, {128, 1060}}), "meets");
  EXPECT_EQ(grouped({{0, 1024}, {128, 1000}}), "meets");
}

// What two members read overlaps: a third may write neither, nor between them.
TEST_F(GroupedBytes, ReadInPiecesThatOverlap) {
  for (const std::size_t second : {64, 32, 0}) {
    EXPECT_EQ(grouped({{0, 1024, 128}, {second, 2048, 192}, {3000, 0}}), "meets") << second;
    EXPECT_EQ(grouped({{0, 1024, 128}, {second, 2048, 192}, {3000, 128}}), "meets") << second;
    EXPECT_EQ(grouped({{second, 1024, 192}, {0, 2048, 128}, {3000, 128}}), "meets") << second;
    EXPECT_EQ(grouped({{0, 1024, 128}, {second, 2048, 192}, {3000, 256}}), "sound") << second;
  }
  // Apart from each other, with room for one between them.
  EXPECT_EQ(grouped({{0, 1024}, {128, 2048}, {3000, 64}}), "sound");
  EXPECT_EQ(grouped({{128, 1024}, {0, 2048}, {192, 3072}, {256, 128}}), "meets");
  EXPECT_EQ(grouped({{0, 1024}, {64, 2048}, {0, 3072, 128}, {3500, 96}}), "meets");
  // Of equal size; and nothing at all, where something is.
  EXPECT_EQ(grouped({{0, 1024, 128}, {64, 2048, 128}, {3000, 128}}), "meets");
  EXPECT_EQ(grouped({{0, 1024}, {0, 2000, 0}, {128, 0}}), "meets");
}

TEST_F(GroupedBytes, WorkspacesAreEachTheirOwn) {
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {0, 1088, 64, 2112}}), "sound");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {0, 1088, 64, 2048}}), "meets");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {0, 1088, 64, 1024}}), "meets");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {2048, 1088}}), "meets");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {64, 1088, 64, 3000}, {64, 1152, 64, 3000}}), "meets");
  // One launch has one workspace where the kernel says so.
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {0, 1088, 64, 2048}}, "many_shared"), "sound");
  // Over it lies nothing else.
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {2048, 1088, 64, 2048}}, "many_shared"), "meets");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {0, 2048, 64, 2112}}, "many_shared"), "meets");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {64, 1088, 64, 1024}}, "many_shared"), "meets");
  EXPECT_EQ(grouped({{0, 1024, 64, 2048}, {64, 1088, 64, 2048}, {128, 1152, 64, 3000}}, "many_shared"), "sound");
  EXPECT_EQ(grouped({{128, 1024, 64, 2048}, {64, 1088, 64, 128}}, "many_shared"), "meets");
}

TEST_F(GroupedBytes, SlicesMoveTogetherWhereTheirPlaceIsTheSame) {
  grouped({{0, 1024, 64}, {2048, 1088, 64}});
  // Halves of 64 bytes of each rank's 128: the first writes its own, the second the one behind it.
  p.instructions[0].outputs[0].place = p.instructions[1].outputs[0].place = {0, 2, 128};
  EXPECT_EQ(message(), "sound");
  std::swap(p.instructions[0].outputs, p.instructions[1].outputs);
  EXPECT_EQ(message(), "sound");
  std::swap(p.instructions[0].outputs, p.instructions[1].outputs);
  p.instructions[1].outputs[0].place.stride = 64;  // the second rank's begins where the first one's end
  p.instructions[1].outputs[0].offset = 1088;
  EXPECT_NE(message(), "sound");
}

// The second rank's slice is read where the first one's is not.
TEST_F(GroupedBytes, OneTensorInTwoPlaces) {
  grouped({{0, 1024}, {0, 1088}, {2048, 128}});
  EXPECT_EQ(message(), "sound");
  p.instructions[1].inputs[0].place = {0, 2, 128};
  EXPECT_NE(message(), "sound");
}

// Copies are grouped where starting them takes longer than doing them.
TEST_F(GroupedBytes, CopiesAreSmall) {
  p.device = device::Kind::cuda;
  p.buffers.push_back({.name = "x", .bytes = std::size_t{1} << 20});
  for (const std::size_t at : {0, 1}) {
    Instruction i;
    i.kind = Instruction::Kind::copy;
    i.name = "c";
    const TensorType type{DType::u8, {1 << 16}};
    i.inputs = {{0, type, at << 16}};
    i.outputs = {{0, type, (at + 4) << 16}};
    p.instructions.push_back(i);
  }
  p.launch_groups = {{0, 2}};
  EXPECT_EQ(message(), "sound");
  for (Instruction& i : p.instructions) i.workspace = {0, {DType::u8, {64}}, std::size_t{1} << 19};
  EXPECT_NE(message(), "sound");
  for (Instruction& i : p.instructions) i.workspace = {};
  p.instructions[1].inputs[0].type = p.instructions[1].outputs[0].type = {DType::u8, {(1 << 16) + 1}};
  EXPECT_EQ(message(),
            "instruction 1 (copy 'c', micro-batch 0) cannot be launched together with instruction 0 (copy 'c', "
            "micro-batch 0)");
}

// By hand: launches that a region captures.
TEST_F(VerifyTest, WhatARegionCaptures) {
  std::string nodes;
  std::string from = "x";
  for (int k = 0; k < 12; ++k) {
    const std::string to = "a" + std::to_string(k);
    nodes += fmt::format("    %{} = single(%{}) : f32[16]\n", to, from);
    from = to;
  }
  lower_graph(nodes + "    output y = %" + from + "\n");
  p.capture_regions = {{.first = 2, .last = 12, .waits = {}, .records = {}}};
  EXPECT_EQ(message(), "sound");
  const Program good = p;
  // Events inside a region are its own.
  p.instructions[4].records = 0;
  p.instructions[5].waits = {0};
  EXPECT_EQ(message(), "sound");
  p = good;
  p.instructions[4].stream = kCommStream;
  EXPECT_EQ(message(), "instruction 4 (single 'a3', micro-batch 0) needs the host and is captured");
  p = good;
  p.instructions[4].kind = Instruction::Kind::send;
  EXPECT_EQ(message(), "instruction 4 (single 'a3', micro-batch 0) needs the host and is captured");
  const auto last = static_cast<std::int32_t>(p.instructions.size());
  for (const auto& [first, end] : {std::pair{5, 5}, {5, 4}, {5, last + 1}}) {
    p = good;
    p.capture_regions = {{.first = first, .last = end}};
    EXPECT_EQ(message(),
              fmt::format("the capture region of instructions {} to {} is empty or overlaps the one before it", first,
                          end - 1));
  }
}

}  // namespace
}  // namespace trireme::program
