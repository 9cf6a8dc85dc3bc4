// What the checker knows of persistent state, of copies to and from the disk, and of shards.
#include "trireme/program/check_contents.h"

#include "trireme/program/check_fixture.h"

namespace trireme::program {
namespace {

TEST_F(CheckTest, OverlappingStates) {
  buffer("w", 0, 0);
  buffer("v", 0, 1);
  EXPECT_EQ(message(), "states 'v' and 'w' overlap");
}

TEST_F(CheckTest, EveryOverlapOfStatesIsFound) {
  buffer("w", 0, 0);
  buffer("v", 128, 1);
  buffer("u", 256, 2);
  EXPECT_EQ(message(), "sound");
  p.buffers[0].bytes = 192;  // reaches into v
  EXPECT_EQ(message(), "states 'v' and 'w' overlap");
  p.buffers[0].bytes = 64;
  p.buffers[2].offset = 64;  // and u, which comes last, over all of v
  p.buffers[2].bytes = 256;
  p.arena_bytes = p.state_bytes = 320;
  EXPECT_EQ(message(), "states 'v' and 'u' overlap");
  p.buffers[2].bytes = 96;  // or into its middle
  EXPECT_EQ(message(), "states 'v' and 'u' overlap");
  p.buffers[2].bytes = 64;
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, StatesLieInsideThePersistentState) {
  buffer("w", 0, 0);
  buffer("v", 64, 1);
  p.state_bytes = 96;
  EXPECT_EQ(message(), "state 'v' ends at byte 128 of the device's memory, where persistent state ends at 96");
  p.state_bytes = 128;
  p.arena_bytes = 64;
  EXPECT_EQ(message(), "state 'v' ends at byte 128 of the device's memory, where persistent state ends at 64");
  p.buffers[1].tier = kHostTier;
  p.state_bytes = 64;
  EXPECT_EQ(message(), "state 'v' ends at byte 128 of the host's memory, where persistent state ends at 0");
}

// Nobody reads the state again in this program, but the next one does.
TEST_F(CheckTest, NothingLiesOverAState) {
  buffer("w", 0, 0);
  const BufferId x = buffer("x", 0);
  input(x);
  EXPECT_EQ(message(), "buffer 'x' lies over state 'w', and is no state");
  p.buffers[1].offset = 64;  // where another program has a state
  p.arena_bytes = p.state_bytes = 128;
  EXPECT_EQ(message(),
            "buffer 'x' lies at byte 64 of the device's memory, among the persistent state, and is no state");
  p.state_bytes = 64;
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, AStateIsNoWorkspace) {
  const BufferId w = buffer("w", 0, 0);
  const BufferId x = buffer("x", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  launch("scale", {x}, a).workspace = {w, type};
  EXPECT_EQ(message(), "instruction 1 (scale 'a', micro-batch 0) has state 'w' as its workspace");
  p.instructions.back().workspace = {};
  launch("scale", {x}, w);  // a declared write
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, CheckpointsAreStagedWhereNothingElseIs) {
  const BufferId staging = buffer("checkpoint", 0, kStaging);
  const BufferId a = buffer("a", 64);
  input(staging);
  EXPECT_EQ(message(),
            "instruction 0 (input 'checkpoint', micro-batch 0) uses 'checkpoint', where checkpoints are staged");
  p.instructions.clear();
  launch("scale", {staging}, a);
  EXPECT_EQ(message(), "instruction 0 (scale 'a', micro-batch 0) uses 'checkpoint', where checkpoints are staged");
}

// The compute stream waits for the second of two loads, which may be done before the first.
TEST_F(CheckTest, LoadsFromTheDiskCompleteInAnyOrder) {
  const BufferId x = page("x", kDiskTier, 0);
  const BufferId y = page("y", kDiskTier, 1);
  for (const BufferId id : {x, y}) p.buffers[static_cast<std::size_t>(id)].state = id;
  p.tier_state_bytes[kDiskTier] = 2 * kPage;
  const BufferId here = page("here", 0, 0);
  const BufferId there = page("there", 0, 1);
  const BufferId sum = page("sum", 0, 2);
  load(x, here).records = 0;
  load(y, there).records = 1;
  launch("add", {here, there}, sum).waits = {1};
  EXPECT_EQ(message(),
            "instruction 0 (load 'here', micro-batch 0) and instruction 2 (add 'sum', micro-batch 0) touch the same "
            "bytes, but nothing orders them");
  p.instructions.back().waits = {0, 1};
  EXPECT_EQ(message(), "sound");
  // Copies to and from the host's memory do follow each other.
  p.instructions.back().waits = {1};
  for (const BufferId id : {x, y}) p.buffers[static_cast<std::size_t>(id)].tier = kHostTier;
  p.tier_bytes[kHostTier] = p.tier_state_bytes[kHostTier] = 2 * kPage;
  EXPECT_EQ(message(), "sound");
}

// A load waits for the store after the one it reads from.
TEST_F(CheckTest, StoresToTheDiskCompleteInAnyOrder) {
  const BufferId x = page("x", 0, 0);
  const BufferId y = page("y", 0, 1);
  const BufferId back = page("back", 0, 2);
  const BufferId x_there = page("x there", kDiskTier, 0);
  const BufferId y_there = page("y there", kDiskTier, 1);
  input(x);
  input(y).records = 0;
  Instruction& first = store(x, x_there);
  first.waits = {0};
  first.records = 1;
  store(y, y_there).records = 2;
  load(x_there, back).waits = {2};
  EXPECT_EQ(message(),
            "instruction 2 (store 'x there', micro-batch 0) and instruction 4 (load 'back', micro-batch 0) touch the "
            "same bytes, but nothing orders them");
  p.instructions.back().waits = {1};
  EXPECT_EQ(message(), "sound");
  // The first store's wait is the second's too: they start in order.
  p.instructions.back().waits = {1, 2};
  input(x).waits = {1};
  EXPECT_EQ(message(), "sound");
  input(y);
  EXPECT_EQ(
      message(),
      "instruction 3 (store 'y there', micro-batch 0) and instruction 6 (input 'y', micro-batch 0) touch the same "
      "bytes, but nothing orders them");
}

// What one stream knows of copies passes to the streams that wait for it, and to those that wait for them.
TEST_F(CheckTest, KnowledgeOfDiskCopiesPassesOn) {
  const BufferId x = page("x", kDiskTier, 0);
  p.buffers[static_cast<std::size_t>(x)].state = 0;
  p.tier_state_bytes[kDiskTier] = kPage;
  const BufferId here = page("here", 0, 0);
  const BufferId a = page("a", 0, 1);
  const BufferId b = page("b", 0, 2);
  load(x, here).records = 0;
  Instruction& one = launch("scale", {here}, a, kCommStream);
  one.waits = {0};
  one.records = 1;
  launch("add", {a, here}, b).waits = {1};
  EXPECT_EQ(message(), "sound");
  // An event from before the wait does not pass it on.
  const BufferId c = page("c", 0, 3);
  Instruction early = p.instructions.front();
  early.kind = Instruction::Kind::input;
  early.inputs.clear();
  early.outputs = {{c, type}};
  early.stream = kCommStream;
  early.records = 2;
  p.instructions.insert(p.instructions.begin() + 1, early);
  EXPECT_EQ(message(), "sound");
  p.instructions.back().inputs = {{c, type}, {here, type}};
  p.instructions.back().waits = {2};
  EXPECT_EQ(
      message(),
      "instruction 0 (load 'here', micro-batch 0) and instruction 3 (add 'b', micro-batch 0) touch the same bytes, "
      "but nothing orders them");
}

// Only the own quarter is written: the others hold nothing.
TEST_F(CheckTest, AShardIsNotTheWhole) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  launch("scale", {x}, w);
  reads(shard(x));
  p.instructions.back().outputs = {shard(w)};
  launch("scale", {w}, a);
  EXPECT_EQ(message(),
            "instruction 2 (scale 'a', micro-batch 0) reads 'w', but instruction 1 (scale 'w', micro-batch 0) has "
            "written one rank's shard of it alone");
  // Nor are rows of it there; nor another kind of shard.
  reads({w, {DType::f32, {4}}});
  EXPECT_NE(message().find("one rank's shard of it alone"), std::string::npos) << message();
  reads(shard(w));
  p.mesh = ir::parse_mesh("dp=4,tp=4");
  p.instructions.back().inputs[0].place.axis = 1;
  EXPECT_NE(message().find("one rank's shard of it alone"), std::string::npos) << message();
  // The own quarter is there.
  reads(shard(w));
  EXPECT_EQ(message(), "sound");
  p.outputs = {{"w", 0, {w, type}}};
  EXPECT_EQ(message(),
            "output 'w' of micro-batch 0 does not survive: instruction 1 (scale 'w', micro-batch 0) has written one "
            "rank's shard of it alone");
}

// The gather in place makes the whole of the quarters.
TEST_F(CheckTest, AnAllGatherMakesTheWhole) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  launch("scale", {x}, w);
  p.instructions.back().outputs = {shard(w)};
  reads(shard(x));
  Instruction& gather = launch("all_gather", {w}, w);
  gather.kind = Instruction::Kind::collective;
  gather.inputs = {shard(w)};
  gather.attributes.set("axis", std::string("dp"));
  gather.attributes.set("parts", std::int64_t{4});
  gather.attributes.set("rows", std::vector<std::int64_t>{16});
  launch("scale", {w}, a);
  EXPECT_EQ(message(), "sound");
}

// The new quarter among three old ones is no value at all.
TEST_F(CheckTest, AStateIsNotReadOrLeftWithOneShardNew) {
  const BufferId w = buffer("w", 0, 0);
  const BufferId a = buffer("a", 64);
  launch("scale", {w}, w);
  reads(shard(w));
  p.instructions.back().outputs = {shard(w)};
  EXPECT_EQ(message(), "instruction 0 (scale 'w', micro-batch 0) leaves state 'w' with one rank's shard written alone");
  launch("scale", {w}, a);
  EXPECT_EQ(message(),
            "instruction 1 (scale 'a', micro-batch 0) reads 'w', but instruction 0 (scale 'w', micro-batch 0) has "
            "written one rank's shard of it alone");
}

// Fifteen numbers for four ranks: the last rank's shard ends with padding, which no gather writes.
TEST_F(CheckTest, PaddingIsNoPartOfAState) {
  const BufferId w = buffer("w", 0, 0);
  launch("scale", {w}, w);
  reads(shard(w));
  p.instructions.back().outputs = {shard(w)};
  const auto gather = [&](std::int64_t numbers) {
    Instruction& i = launch("all_gather", {w}, w);
    i.kind = Instruction::Kind::collective;
    i.inputs = {shard(w)};
    i.outputs[0].type = {DType::f32, {numbers}};
    i.attributes.set("axis", std::string("dp"));
    i.attributes.set("parts", std::int64_t{4});
    i.attributes.set("rows", std::vector<std::int64_t>{numbers});
  };
  gather(15);
  EXPECT_EQ(message(), "sound");
  const BufferId a = buffer("a", 64);
  p.instructions.insert(p.instructions.begin(), p.instructions.front());
  p.instructions.front().inputs = {{w, type}};
  p.instructions.front().outputs = {{a, type}};  // reads all sixteen, so the last is no padding
  EXPECT_EQ(message(), "instruction 1 (scale 'w', micro-batch 0) leaves state 'w' with one rank's shard written alone");
}

// A shard in two halves: neither is both, and what is between them is not theirs.
TEST_F(CheckTest, HalvesOfAShard) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  const auto half = [&](std::size_t offset) {
    launch("scale", {x}, w);
    reads(shard(x, offset, 8));
    p.instructions.back().outputs = {shard(w, offset, 8)};
  };
  half(8);
  launch("scale", {w}, a);
  reads(shard(w));
  EXPECT_EQ(message(), "instruction 2 (scale 'a', micro-batch 0) reads 'w' before anything is written there");
  reads(shard(w, 4, 12));
  EXPECT_NE(message(), "sound");
  reads(shard(w, 8, 8));
  EXPECT_EQ(message(), "sound");
  const Instruction reader = p.instructions.back();
  p.instructions.pop_back();
  half(0);
  p.instructions.push_back(reader);
  reads(shard(w));
  EXPECT_EQ(message(), "sound");
  // The first half again, by another buffer over it.
  p.instructions.pop_back();
  const BufferId other = buffer("other", 64);
  launch("scale", {x}, other);
  reads(shard(x, 0, 8));
  p.instructions.back().outputs = {shard(other, 0, 8)};
  p.instructions.push_back(reader);
  reads(shard(w));
  EXPECT_EQ(message(),
            "instruction 4 (scale 'a', micro-batch 0) reads 'w', but instruction 3 (scale 'other', micro-batch 0) has "
            "written 'other' there");
  // What was the other half of w is none of this one's.
  reads(shard(other));
  EXPECT_EQ(message(),
            "instruction 4 (scale 'a', micro-batch 0) reads 'other', but instruction 3 (scale 'other', micro-batch 0) "
            "has written one rank's shard of it alone");
}

// The quarters of dp and those of tp lie over each other: what is left of the former is no part of the latter.
TEST_F(CheckTest, ShardsOfTwoKindsInOneBufferAreNotTakenTogether) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  const auto written = [&](std::size_t bytes, const Place& place) {
    launch("scale", {x}, w);
    reads(shard(x, 0, bytes));
    p.instructions.back().outputs = {shard(w, 0, bytes)};
    for (auto* operands : {&p.instructions.back().inputs, &p.instructions.back().outputs})
      operands->front().place = place;
  };
  const Place tp{1, 4, 16};
  const auto read = [&](int dp, std::size_t bytes) {
    launch("scale", {w}, a);
    reads(shard(w, 0, bytes));
    p.instructions.back().inputs.front().place = tp;
    p.mesh = ir::parse_mesh(fmt::format("dp={},tp=4", dp));
    std::string found = message();
    p.instructions.pop_back();
    return found;
  };
  written(16, {0, 4, 16});
  written(8, tp);
  EXPECT_EQ(read(4, 8), "sound");
  EXPECT_EQ(read(4, 16),
            "instruction 3 (scale 'a', micro-batch 0) reads 'w', but instruction 2 (scale 'w', micro-batch 0) has "
            "written one rank's shard of it alone");
  // Nor where all of it was written before: behind what is tp's, some rank has what is dp's.
  p.instructions.clear();
  input(x);
  launch("scale", {x}, w);
  written(8, {0, 2, 32});
  written(4, tp);
  EXPECT_EQ(read(2, 16),
            "instruction 4 (scale 'a', micro-batch 0) reads 'w', but instruction 3 (scale 'w', micro-batch 0) has "
            "written one rank's shard of it alone");
  p.instructions.erase(p.instructions.begin() + 2);
  EXPECT_EQ(read(2, 16), "sound");
}

TEST_F(CheckTest, ShardsAreForTheRanksOfTheMesh) {
  const BufferId x = buffer("x", 0);
  input(x).outputs = {shard(x)};
  p.mesh = ir::parse_mesh("dp=3");
  EXPECT_EQ(
      message(),
      "instruction 0 (input 'x', micro-batch 0) uses 'x' by its place among 4 ranks along axis 0, the mesh 'dp=3' "
      "has 3");
}

TEST_F(CheckTest, StatesAndBuffersWithoutBytesLieAnywhere) {
  buffer("w", 0, 0);
  buffer("step-local", 0, 1);
  p.buffers.back().bytes = 0;
  buffer("empty", 0);
  p.buffers.back().bytes = 0;
  EXPECT_EQ(message(), "sound");
}

TEST_F(CheckTest, ABufferAmongStatesIsNotOverTheNextOne) {
  buffer("w", 64, 0);
  buffer("x", 0);
  EXPECT_EQ(message(), "buffer 'x' lies at byte 0 of the device's memory, among the persistent state, and is no state");
}

TEST_F(CheckTest, PlacesAreAlongAxesOfTheMesh) {
  const BufferId x = buffer("x", 0);
  input(x).outputs = {shard(x)};
  EXPECT_EQ(message(), "sound");
  for (const std::int32_t axis : {1, -3}) {
    p.instructions[0].outputs[0].place = {axis, 1, 16};
    EXPECT_EQ(message(), fmt::format("instruction 0 (input 'x', micro-batch 0) uses 'x' by its place among 1 ranks "
                                     "along axis {}, the mesh 'dp=4' has 1",
                                     axis));
  }
}

// One rank's shard is the whole, and so is one that all ranks have at the same place.
TEST_F(CheckTest, PlacesThatDoNotShard) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  launch("scale", {x}, a);
  p.mesh = ir::parse_mesh("dp=1");
  p.instructions[0].outputs[0].place = {0, 1, 64};
  EXPECT_EQ(message(), "sound");
  p.mesh = ir::parse_mesh("dp=4");
  p.instructions[0].outputs[0].place = {0, 4, 0};
  EXPECT_EQ(message(), "sound");
}

// Between the ranks' shards lies what none of them writes.
TEST_F(CheckTest, WhatLiesBetweenShardsIsLeft) {
  const BufferId w = buffer("w", 0);
  p.buffers[0].bytes = 448;
  const BufferId gap = buffer("gap", 64);
  const BufferId a = buffer("a", 448);
  input(gap);
  input(w).outputs = {{w, type, 0, {0, 4, 128}}};
  p.mesh = ir::parse_mesh("dp=4");
  launch("scale", {gap}, a);
  EXPECT_EQ(message(), "sound");
}

// Each rank has written the second half of its quarter: all have the first halves that they had.
TEST_F(CheckTest, AShardIsReadOverWhatWasThereBefore) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  launch("scale", {x}, w);
  launch("scale", {x}, w);
  reads(shard(x, 8, 8));
  p.instructions.back().outputs = {shard(w, 8, 8)};
  launch("scale", {w}, a);
  reads(shard(w, 0, 8));
  EXPECT_EQ(message(), "sound");
  reads(shard(w));
  EXPECT_EQ(message(), "sound");
  reads({w, type});
  EXPECT_EQ(message(),
            "instruction 3 (scale 'a', micro-batch 0) reads 'w', but instruction 2 (scale 'w', micro-batch 0) has "
            "written one rank's shard of it alone");
}

// In two halves, the first one first.
TEST_F(CheckTest, AShardInTwoHalvesIsThere) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  input(x);
  for (const std::size_t offset : {0, 8}) {
    launch("scale", {x}, w).inputs = {shard(x, offset, 8)};
    p.instructions.back().outputs = {shard(w, offset, 8)};
  }
  launch("scale", {w}, a);
  reads(shard(w));
  EXPECT_EQ(message(), "sound");
}

// A copy to the disk leaves something in the rest of its last page, and nobody knows what.
TEST_F(CheckTest, TheRestOfAPageIsNotThere) {
  const BufferId x = page("x", 0, 0);
  const BufferId there = page("there", kDiskTier, 0);
  const BufferId back = page("back", 0, 1);
  const TensorType whole{DType::f32, {1024}};
  input(x).records = 0;
  p.instructions.back().outputs[0].type = whole;
  Instruction& full = store(x, there);
  full.inputs[0].type = full.outputs[0].type = whole;
  full.waits = {0};
  full.records = 1;
  Instruction& taken = load(there, back);
  taken.inputs[0].type = taken.outputs[0].type = whole;
  taken.waits = {1};
  EXPECT_EQ(message(), "sound");
  p.instructions[1].inputs[0].type = p.instructions[1].outputs[0].type = type;
  EXPECT_EQ(message(),
            "instruction 2 (load 'back', micro-batch 0) reads 'there', but instruction 1 (store 'there', micro-batch "
            "0) has written less of it");
  p.instructions[2].inputs[0].type = p.instructions[2].outputs[0].type = type;
  EXPECT_EQ(message(), "sound");
}

// Pairs of accesses that were ordered: each writer of shards follows the readers since the one before it.
TEST_F(CheckTest, ReadersAreFollowedOnce) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  input(x);
  launch("scale", {x}, a);
  EXPECT_EQ(check(p).conflicts_ordered, 1U);
  input(x).outputs = {shard(x)};
  EXPECT_EQ(check(p).conflicts_ordered, 3U);  // its writer and its reader
  input(x).outputs = {shard(x)};
  EXPECT_EQ(check(p).conflicts_ordered, 4U);  // the shard's writer
}

}  // namespace
}  // namespace trireme::program
