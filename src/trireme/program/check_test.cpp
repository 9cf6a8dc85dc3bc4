#include "trireme/program/check.h"

#include "trireme/ir/print.h"
#include "trireme/program/check_fixture.h"
#include "trireme/program/lower.h"

namespace trireme::program {
namespace {

TEST_F(CheckTest, TwoStreamsWithEventsAreSound) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  const BufferId b = buffer("b", 128);
  const BufferId c = buffer("c", 192);
  input(x).records = 0;
  launch("scale", {x}, a);
  Instruction& side = launch("scale", {x}, b, 1);
  side.waits = {0};
  side.records = 1;
  Instruction& join = launch("add", {a, b}, c);
  join.waits = {1};
  p.outputs = {{"c", 0, {c, type}}};
  EXPECT_EQ(message(), "sound");
  const CheckReport report = check(p);
  EXPECT_EQ(report.instructions, 4U);
  EXPECT_EQ(report.buffers, 4U);
  EXPECT_EQ(report.conflicts_ordered, 4U);  // x→a, x→b, a→c, b→c
}

TEST_F(CheckTest, MissingEventBetweenWriterAndReader) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  launch("scale", {x}, a, 1);
  EXPECT_EQ(message(),
            "instruction 0 (input 'x', micro-batch 0) and instruction 1 (scale 'a', micro-batch 0) touch the same "
            "bytes, but nothing orders them");
}

TEST_F(CheckTest, MissingEventBetweenReaderAndWriter) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  const BufferId y = buffer("y", 0);
  input(x).records = 0;
  launch("scale", {x}, a, 1).waits = {0};
  input(y);  // over x, while stream 1 may still read it
  EXPECT_EQ(message(),
            "instruction 1 (scale 'a', micro-batch 0) and instruction 2 (input 'y', micro-batch 0) touch the same "
            "bytes, but nothing orders them");
  p.instructions[1].records = 1;
  p.instructions[2].waits = {1};
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, OrderIsTransitiveOverThreeStreams) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  const BufferId b = buffer("b", 128);
  input(x).records = 0;
  Instruction& one = launch("scale", {x}, a, 1);
  one.waits = {0};
  one.records = 1;
  launch("add", {a, x}, b, 2).waits = {1};  // x through stream 1
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, ReadBeforeWrite) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  launch("scale", {x}, a);
  EXPECT_EQ(message(), "instruction 0 (scale 'a', micro-batch 0) reads 'x' before anything is written there");
}

TEST_F(CheckTest, AccumulatingIntoNothing) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  launch("reduce", {x}, a).accumulate = true;
  EXPECT_EQ(message(), "instruction 1 (reduce 'a', micro-batch 0) reads 'a' before anything is written there");
}

TEST_F(CheckTest, PersistentStateMayBeRead) {
  const BufferId w = buffer("w", 0, 0);
  const BufferId a = buffer("a", 64);
  launch("scale", {w}, a);
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, OverlappingBuffersAreSeenByTheReader) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  input(y);
  launch("add", {x, y}, a);
  EXPECT_EQ(message(),
            "instruction 2 (add 'a', micro-batch 0) reads 'x', but instruction 1 (input 'y', micro-batch 0) has "
            "written 'y' there");
}

TEST_F(CheckTest, WorkspaceOverAnInput) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  const BufferId scratch = buffer("scratch", 0);
  input(x);
  launch("scale", {x}, a).workspace = {scratch, type};
  EXPECT_EQ(message(), "instruction 1 (scale 'a', micro-batch 0) writes 'scratch' over its own input 'x'");
}

TEST_F(CheckTest, InPlaceOnlyWhereTheOpCan) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x);
  input(y);
  launch("add", {x, y}, x);
  EXPECT_EQ(message(), "sound");
  p.instructions.back().op = &registry.at("matmul");
  EXPECT_EQ(message(), "instruction 2 (matmul 'x', micro-batch 0) writes 'x' over its own input 'x'");
}

TEST_F(CheckTest, TwoOutputsOverEachOther) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  launch("pair", {x}, a).outputs.push_back({a, type});
  EXPECT_EQ(message(), "instruction 1 (pair 'a', micro-batch 0) writes the same bytes through two outputs");
}

TEST_F(CheckTest, WaitForALaterRecord) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  Instruction& first = input(x);
  first.waits = {0};
  Instruction& second = launch("scale", {x}, a, 1);
  second.records = 0;
  EXPECT_EQ(message(),
            "instruction 0 (input 'x', micro-batch 0) waits for event 0, which only instruction 1 (scale 'a', "
            "micro-batch 0) records: they would wait for each other");
}

TEST_F(CheckTest, WaitForItself) {
  const BufferId x = buffer("x", 0);
  Instruction& first = input(x);
  first.waits = {0};
  first.records = 0;
  EXPECT_EQ(message(),
            "instruction 0 (input 'x', micro-batch 0) waits for event 0, which only instruction 0 (input 'x', "
            "micro-batch 0) records: they would wait for each other");
}

TEST_F(CheckTest, WaitForNothing) {
  input(buffer("x", 0)).waits = {3};
  EXPECT_EQ(message(), "instruction 0 (input 'x', micro-batch 0) waits for event 3, which nothing records");
}

TEST_F(CheckTest, EventRecordedTwice) {
  input(buffer("x", 0)).records = 0;
  input(buffer("y", 64)).records = 0;
  EXPECT_EQ(message(),
            "event 0 is recorded by instruction 0 (input 'x', micro-batch 0) and by instruction 1 (input 'y', "
            "micro-batch 0)");
}

TEST_F(CheckTest, OutputOverwritten) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 0);
  input(x);
  p.outputs = {{"x", 0, {x, type}}};
  EXPECT_EQ(message(), "sound");
  input(y);
  EXPECT_EQ(
      message(),
      "output 'x' of micro-batch 0 does not survive: instruction 1 (input 'y', micro-batch 0) has written 'y' there");
}

TEST_F(CheckTest, OutputNeverWritten) {
  const BufferId x = buffer("x", 0);
  p.outputs = {{"x", 1, {x, type}}};
  EXPECT_EQ(message(), "output 'x' of micro-batch 1 is never written");
  p.outputs = {{"x", 1, {kNone, type}}};
  EXPECT_EQ(message(), "output 'x' of micro-batch 1 has no buffer");
}

// A value that leaves for the disk and comes back, as lowered; every wait that is left out is missed.
TEST_F(CheckTest, EveryWaitForACopyIsNeeded) {
  const ir::Module module = ir::parse(R"(module {
  graph micro {
    input %x : f32[2048]
    %a = relu(%x) : f32[2048]
    %s = store(%a) {tier=2} : f32[2048]
    %c = scale(%a) {factor=2.0} : f32[2048]
    %l = load(%s) : f32[2048]
    %y = add(%l, %c) : f32[2048]
    %z = scale(%y) {factor=2.0} : f32[2048]
    output z = %z
  }
}
)",
                                      registry);
  p = lower(module, lay_out(module), {});
  EXPECT_EQ(message(), "sound");
  int waits = 0;
  for (Instruction& i : p.instructions)
    for (std::size_t w = 0; w < i.waits.size(); ++w) {
      const std::vector<std::int32_t> all = i.waits;
      i.waits.erase(i.waits.begin() + static_cast<std::ptrdiff_t>(w));
      // The load follows the store, which follows the computation; and who waits for the load has waited for the store.
      const bool implied = (i.kind == Instruction::Kind::load && all[w] == 0) || (i.stream == 0 && all[w] == 1);
      if (!implied) {
        EXPECT_NE(message().find("nothing orders them"), std::string::npos) << i.name << ": " << message();
      }
      i.waits = all;
      ++waits;
    }
  EXPECT_EQ(waits, 5);
}

// An update by the host's cores, as lowered: the gradient leaves, the new weights come.
TEST_F(CheckTest, EveryWaitAroundTheHostIsNeeded) {
  const ir::Module module = ir::parse(R"(module {
  state @m : f32[1024] category=optimizer tier=1
  state @w : f32[1024] trained
  graph micro {
    input %x : f32[1024]
    %g = add(%x, @w) : f32[1024] phase=weight_gradient
    %gs = store(%g) {tier=1} : f32[1024] phase=update
    %ws = store(@w) {tier=1} : f32[1024] phase=update
    %n = add(@m, %gs) : f32[1024] phase=update on_host
    %p = add(%ws, %n) : f32[1024] phase=update on_host
    %l = load(%p) : f32[1024] phase=update
    write set @m = %n
    write set @w = %l
  }
}
)",
                                      registry);
  p = lower(module, lay_out(module), {});
  ASSERT_EQ(message(), "sound");
  std::vector<std::string> needed;
  for (Instruction& i : p.instructions)
    for (std::size_t w = 0; w < i.waits.size(); ++w) {
      const std::vector<std::int32_t> all = i.waits;
      i.waits.erase(i.waits.begin() + static_cast<std::ptrdiff_t>(w));
      if (const std::string found = message(); found != "sound") {
        EXPECT_NE(found.find("nothing orders them"), std::string::npos) << found;
        needed.push_back(i.name);
      }
      i.waits = all;
    }
  // The gradient after what makes it, the first sum after the gradient, new weights after the second sum. The old
  // weights leave before the gradient does, on the same stream: all else follows.
  EXPECT_EQ(needed, (std::vector<std::string>{"gs", "n", "l"}));
}

TEST_F(CheckTest, LaunchesOnTheHost) {
  const auto on_host = [&](const char* name, std::size_t offset) {
    const BufferId id = buffer(name, offset, 0);
    p.buffers.back().tier = kHostTier;
    p.tier_bytes[kHostTier] = std::max(p.tier_bytes[kHostTier], offset + 64);
    p.tier_state_bytes = p.tier_bytes;
    p.state_bytes = 0;
    return id;
  };
  const BufferId a = on_host("a", 0);
  const BufferId b = on_host("b", 64);
  launch("scale", {a}, b, kHostStream).on_host = true;
  EXPECT_EQ(message(), "sound");
  launch("scale", {a}, b, kCommStream).on_host = true;
  EXPECT_EQ(message(),
            "instruction 1 (scale 'b', micro-batch 0) is on stream 3, and another launch on the host on stream 5: they "
            "would meet");
  p.instructions.pop_back();
  const BufferId here = buffer("here", 0);
  input(here);
  launch("add", {a, here}, b, kHostStream).on_host = true;
  EXPECT_EQ(message(), "instruction 2 (add 'b', micro-batch 0) reads or writes in the wrong memory tier");
}

TEST_F(CheckTest, OnlyLaunchesAreDoneOnTheHost) {
  input(buffer("x", 0)).on_host = true;
  EXPECT_EQ(message(), "instruction 0 (input 'x', micro-batch 0) cannot be done on the host");
}

TEST_F(CheckTest, TiersAndStreamsThatDoNotExist) {
  const BufferId x = buffer("x", 0);
  input(x);
  EXPECT_EQ(message(), "sound");
  input(x, -1);
  EXPECT_EQ(message(), "instruction 1 (input 'x', micro-batch 0) is on stream -1");
  for (const int tier : {-1, kTiers}) {
    p.buffers[0].tier = tier;
    EXPECT_EQ(message(), fmt::format("buffer 'x' is in tier {}", tier));
  }
}

TEST_F(CheckTest, StoresAndLoadsCopyOneTensor) {
  const BufferId x = page("x", 0, 0);
  const BufferId there = page("there", kHostTier, 0);
  input(x).records = 0;
  store(x, there).waits = {0};
  EXPECT_EQ(message(), "sound");
  const std::string fault = "instruction 1 (store 'there', micro-batch 0) does not copy one tensor";
  const Instruction good = p.instructions.back();
  Instruction& copy = p.instructions.back();
  copy.inputs.push_back(copy.inputs.front());
  EXPECT_EQ(message(), fault);
  copy = good;
  copy.outputs.clear();
  EXPECT_EQ(message(), fault);
  copy = good;
  copy.inputs.front().buffer = kNone;
  EXPECT_EQ(message(), fault);
  copy = good;
  copy.outputs.front().buffer = kNone;
  EXPECT_EQ(message(), fault);
}

TEST_F(CheckTest, ComputationOutsideTheDevice) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 0);
  p.buffers[1].tier = 2;
  p.tier_bytes[2] = 64;
  input(x);
  launch("scale", {x}, a);
  EXPECT_EQ(message(), "instruction 1 (scale 'a', micro-batch 0) reads or writes in the wrong memory tier");
}

TEST_F(CheckTest, PlacesOutsideTheArena) {
  const BufferId x = buffer("x", 0);
  input(x).outputs[0].type = {DType::f32, {17}};
  EXPECT_EQ(message(), "instruction 0 (input 'x', micro-batch 0) reaches beyond buffer 'x' (68 of 64 bytes)");
  p.instructions[0].outputs[0].type = type;
  p.arena_bytes = 32;
  EXPECT_EQ(message(), "instruction 0 (input 'x', micro-batch 0) reaches beyond buffer 'x' (64 of 64 bytes)");
  p.arena_bytes = 640;
  p.buffers[0].offset = 4;
  EXPECT_EQ(message(), "instruction 0 (input 'x', micro-batch 0) uses buffer 'x' at offset 4, which is not aligned");
  p.instructions[0].outputs[0].buffer = 9;
  EXPECT_EQ(message(), "instruction 0 (input 'x', micro-batch 0) names buffer 9, which does not exist");
}

TEST_F(CheckTest, EventsThatNothingRecords) {
  input(buffer("x", 0)).records = 1;
  input(buffer("y", 64));
  for (const std::int32_t event : {-1, 0, 2}) {
    p.instructions.back().waits = {event};
    EXPECT_EQ(message(),
              fmt::format("instruction 1 (input 'y', micro-batch 0) waits for event {}, which nothing records", event));
  }
}

// Inputs and workspaces lie inside their buffers too.
TEST_F(CheckTest, WhatIsReadIsInsideItsBuffer) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  launch("scale", {x}, a).workspace = {buffer("scratch", 128), type};
  EXPECT_EQ(message(), "sound");
  const Instruction good = p.instructions.back();
  p.arena_bytes = 640;
  p.instructions.back().inputs[0].type = {DType::f32, {17}};
  EXPECT_EQ(message(), "instruction 1 (scale 'a', micro-batch 0) reaches beyond buffer 'x' (68 of 64 bytes)");
  p.instructions.back() = good;
  p.instructions.back().workspace.type = {DType::f32, {17}};
  EXPECT_EQ(message(), "instruction 1 (scale 'a', micro-batch 0) reaches beyond buffer 'scratch' (68 of 64 bytes)");
  for (const BufferId id : {-5, 3}) {
    p.instructions.back().workspace.buffer = id;
    EXPECT_EQ(message(),
              fmt::format("instruction 1 (scale 'a', micro-batch 0) names buffer {}, which does not exist", id));
  }
  p.instructions.back() = good;
  p.outputs = {{"a", 0, {3, type}}};
  EXPECT_EQ(message(), "output 'a' of micro-batch 0 has no buffer");
}

TEST_F(CheckTest, WritesOverInputsWhereNoOpCanWorkInPlace) {
  const BufferId x = buffer("x", 0);
  p.buffers[0].bytes = 128;
  const BufferId y = buffer("y", 0);
  const BufferId z = buffer("z", 128);
  const TensorType both{DType::f32, {32}};
  input(x).outputs[0].type = both;
  input(z);
  // Another buffer at the same place; another place of the same buffer, before its end; a part of it.
  launch("add", {x, z}, y);
  EXPECT_EQ(message(), "instruction 2 (add 'y', micro-batch 0) writes 'y' over its own input 'x'");
  p.instructions.back().inputs[0].type = both;
  p.instructions.back().outputs = {{x, type, 64}};
  EXPECT_EQ(message(), "instruction 2 (add 'y', micro-batch 0) writes 'x' over its own input 'x'");
  p.instructions.back().inputs = {{x, type}, {z, type}};
  p.instructions.back().outputs = {shard(x)};
  EXPECT_EQ(message(), "instruction 2 (add 'y', micro-batch 0) writes 'x' over its own input 'x'");
  // A copy has no op.
  p.instructions.pop_back();
  move(Instruction::Kind::copy, x, x, 0);
  EXPECT_EQ(message(), "instruction 2 (copy 'x', micro-batch 0) writes 'x' over its own input 'x'");
}

// Each output of a collective goes with its own input.
TEST_F(CheckTest, ACollectiveWritesOverItsOwnInputAlone) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x);
  input(y);
  Instruction& sum = launch("all_reduce", {x, y}, x);
  sum.kind = Instruction::Kind::collective;
  sum.attributes.set("axis", std::string("dp"));
  sum.attributes.set("parts", std::int64_t{2});
  sum.attributes.set("reduce", std::string("sum"));
  p.mesh = ir::parse_mesh("dp=2");
  sum.outputs = {{x, type}, {y, type}};
  EXPECT_EQ(message(), "sound");
  std::swap(sum.outputs[0], sum.outputs[1]);
  EXPECT_EQ(message(), "instruction 2 (all_reduce 'x', micro-batch 0) writes 'x' over its own input 'x'");
}

TEST_F(CheckTest, WhatAWorkspaceWasWrittenOverIsGone) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  const BufferId b = buffer("b", 128);
  const BufferId scratch = buffer("scratch", 64);
  input(x);
  launch("scale", {x}, a);
  launch("scale", {x}, b).workspace = {scratch, type};
  launch("scale", {a}, b);
  EXPECT_EQ(message(),
            "instruction 3 (scale 'b', micro-batch 0) reads 'a', but instruction 2 (scale 'b', micro-batch 0) has "
            "written 'scratch' there");
}

// What has no bytes lies over nothing.
TEST_F(CheckTest, NothingIsNoConflict) {
  const BufferId x = buffer("x", 0);
  p.buffers[0].bytes = 128;
  p.arena_bytes = 256;
  const BufferId a = buffer("a", 128);
  p.buffers[1].bytes = 128;
  const TensorType both{DType::f32, {32}};
  input(x).outputs[0].type = both;
  const TensorType nothing{DType::f32, {0}};
  Instruction& i = launch("all_reduce", {x, x}, a);
  i.attributes = {{"parts", std::int64_t{1}}, {"reduce", std::string("sum")}};
  i.inputs[0].type = both;
  i.inputs[1].type = nothing;
  i.outputs = {{a, both}, {a, nothing, 64}};
  EXPECT_EQ(message(), "sound");
}

// The second instruction of a stream is ordered after the first, and another stream's is not.
TEST_F(CheckTest, TheFirstInstructionIsOrderedToo) {
  const BufferId x = buffer("x", 0);
  input(x);
  input(x, 1);
  EXPECT_EQ(message(),
            "instruction 0 (input 'x', micro-batch 0) and instruction 1 (input 'x', micro-batch 0) touch the same "
            "bytes, but nothing orders them");
}

}  // namespace
}  // namespace trireme::program
