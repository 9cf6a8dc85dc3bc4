// What the checker asks of instructions that communicate, by one program alone: streams, keys and sizes.
#include "trireme/program/check_fixture.h"

namespace trireme::program {
namespace {

class Communication : public CheckTest {
 protected:
  Instruction& all_reduce(BufferId b, std::int32_t stream, std::int64_t parts = 2) {
    Instruction& i = launch("all_reduce", {b}, b, stream);
    i.kind = Instruction::Kind::collective;
    i.attributes.set("axis", std::string("dp"));
    i.attributes.set("parts", parts);
    i.attributes.set("reduce", std::string("sum"));
    p.mesh = ir::parse_mesh("dp=2");
    return i;
  }

  Instruction& push(BufferId b, std::int64_t peer, std::int64_t key) {
    Instruction& i = launch("push", {b}, b, kCommStream);
    i.kind = Instruction::Kind::push;
    i.outputs.clear();
    i.attributes.set("peer", peer);
    i.attributes.set("key", key);
    return i;
  }

  Instruction& pull(BufferId b, std::int64_t peer, std::int64_t key) {
    Instruction& i = launch("pull", {}, b, kCommStream);
    i.kind = Instruction::Kind::pull;
    i.attributes.set("peer", peer);
    i.attributes.set("key", key);
    return i;
  }
};

// Streams of one rank go on at their own pace: another rank might meet the second collective first.
TEST_F(Communication, CollectivesOfAGroupAreOnOneStream) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x, kCommStream);
  input(y, kReduceStream);
  all_reduce(x, kCommStream);
  all_reduce(y, kReduceStream);
  EXPECT_EQ(message(),
            "instruction 3 (all_reduce 'y', micro-batch 0) is on stream 10, and another collective of its group on "
            "stream 3: ranks might not meet in one order");
  // Those of another group have their own.
  p.instructions.back().attributes.set("axis", std::string("tp"));
  p.mesh = ir::parse_mesh("dp=2,tp=2");
  EXPECT_EQ(message(), "sound");
}

TEST_F(Communication, CollectivesAreForTheRanksOfTheMesh) {
  const BufferId x = buffer("x", 0);
  input(x);
  all_reduce(x, 0);
  EXPECT_EQ(message(), "sound");
  p.instructions.pop_back();
  all_reduce(x, 0, 3);
  EXPECT_EQ(message(), "instruction 1 (all_reduce 'x', micro-batch 0) is for 3 ranks along dp, the mesh 'dp=2' has 2");
}

TEST_F(Communication, CollectivesMakeWhatTheirOpDoes) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x);
  all_reduce(x, 0);
  p.instructions.back().outputs.push_back({y, type});
  EXPECT_EQ(message(), "instruction 1 (all_reduce 'x', micro-batch 0) has 2 outputs, and its op makes 1");
  p.instructions.back().outputs = {{x, {DType::f32, {8}}}};
  EXPECT_EQ(message(), "instruction 1 (all_reduce 'x', micro-batch 0) writes f32[8], and its op makes f32[16]");
}

// Only what is added up in place, and a rank's own part of a whole, lie over what a collective makes.
TEST_F(Communication, CollectivesWriteOverTheirInputsWhereThatIsTheirOwnPart) {
  const BufferId x = buffer("x", 0);
  p.mesh = ir::parse_mesh("dp=4,tp=4");
  const auto of = [&](const char* op, const Operand& from, const Operand& to) {
    p.instructions.clear();
    input(x);
    Instruction& i = launch(op, {x}, x);
    i.kind = Instruction::Kind::collective;
    i.attributes = {{"axis", std::string("dp")}, {"parts", std::int64_t{4}}, {"rows", std::vector<std::int64_t>{16}}};
    i.inputs = {from};
    i.outputs = {to};
    return message();
  };
  const Operand whole{x, type};
  const TensorType quarter{DType::f32, {4}};
  const Operand own{x, quarter, 0, {0, 4, 16}};
  EXPECT_EQ(of("all_gather", own, whole), "sound");
  EXPECT_EQ(of("reduce_scatter", whole, own), "sound");
  const std::string over = "instruction 1 ({} 'x', micro-batch 0) writes 'x' over its own input 'x'";
  const auto refused = [&](const char* op) { return fmt::format(fmt::runtime(over), op); };
  // The first rank's part, the part by another axis, and parts that lie closer than they are large.
  for (const Place& place : {Place{}, Place{1, 4, 16}, Place{0, 4, 8}, Place{kNone, 4, 16}}) {
    EXPECT_EQ(of("all_gather", {x, quarter, 0, place}, whole), refused("all_gather"));
    EXPECT_EQ(of("reduce_scatter", whole, {x, quarter, 0, place}), refused("reduce_scatter"));
  }
  // A whole that is a part of something else.
  p.buffers[0].bytes = 256;
  p.arena_bytes = 256;
  EXPECT_EQ(of("all_gather", own, {x, type, 0, {1, 4, 64}}), refused("all_gather"));
  const Operand rows{x, {DType::f32, {4, 4}}};
  EXPECT_EQ(of("all_to_all", rows, rows), refused("all_to_all"));
  // The whole of one value over the part of another.
  const BufferId y = buffer("y", 256);
  const Operand other{y, quarter, 0, {0, 4, 16}};
  of("all_gather", other, whole);
  input(y);
  std::swap(p.instructions[1], p.instructions[2]);
  p.instructions[2].attributes.set("rows", std::vector<std::int64_t>{16, 16});
  p.instructions[2].inputs = {other, own};
  p.instructions[2].outputs = {whole, {y, type}};
  EXPECT_EQ(message(), "instruction 2 (all_gather 'x', micro-batch 0) writes 'x' over its own input 'x'");
  p.instructions[2].op = &registry.at("reduce_scatter");
  p.instructions[2].inputs = {whole, {y, type}};
  p.instructions[2].outputs = {other, own};
  EXPECT_NE(message().find("over its own input"), std::string::npos) << message();
}

// More would be read or written than is known to be there.
TEST_F(Communication, InstructionsTouchWhatTheirOpsTakeAndMake) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x).outputs[0].type = {DType::f32, {4}};
  launch("relu", {x}, y).inputs[0].type = {DType::f32, {4}};
  EXPECT_EQ(message(), "instruction 1 (relu 'y', micro-batch 0) writes f32[16], and its op makes f32[4]");
  p.instructions[1].kind = Instruction::Kind::copy;
  p.instructions[1].op = nullptr;
  EXPECT_EQ(message(), "instruction 1 (copy 'y', micro-batch 0) copies f32[4] to f32[16], which is not as large");
  p.instructions[1].outputs[0].type = {DType::f32, {4}};
  EXPECT_EQ(message(), "sound");
  p.instructions.clear();
  input(x).records = 0;
  p.tier_bytes[kHostTier] = 64;
  p.buffers[static_cast<std::size_t>(y)].tier = kHostTier;
  p.buffers[static_cast<std::size_t>(y)].offset = 0;
  Instruction& i = store(x, y);
  i.waits = {0};
  EXPECT_EQ(message(), "sound");
  i.inputs[0].type = {DType::f32, {4}};
  EXPECT_EQ(message(), "instruction 1 (store 'y', micro-batch 0) copies f32[4] to f32[16], which is not as large");
}

// Replays do not wait for these streams.
TEST_F(Communication, NothingElseIsOnAStreamOfMessages) {
  const BufferId x = buffer("x", 0);
  for (const std::int32_t stream :
       {kSendActivationStream, kReceiveActivationStream, kSendGradientStream, kReceiveGradientStream}) {
    p.instructions.clear();
    input(x, stream);
    EXPECT_EQ(message(), fmt::format("instruction 0 (input 'x', micro-batch 0) is on stream {}, which is for messages "
                                     "between stages",
                                     stream));
  }
}

// A server answers when it has all pushes.
TEST_F(Communication, NothingIsPushedAfterAPull) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  const BufferId w = buffer("w", 128);
  input(x, kCommStream);
  input(y, kCommStream);
  push(x, 1, 3);
  push(y, 1, 4);
  pull(w, 1, 7);
  EXPECT_EQ(message(), "sound");
  std::swap(p.instructions[3], p.instructions[4]);
  EXPECT_EQ(message(),
            "instruction 4 (push 'y', micro-batch 0) comes after instruction 3 (pull 'w', micro-batch 0), whose answer "
            "may need it: they would wait for each other");
}

// What is pushed under a key may be pulled under it; the same key of another server is another.
TEST_F(Communication, AKeyIsUsedOnceEachWay) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  const BufferId w = buffer("w", 128);
  const BufferId v = buffer("v", 192);
  input(x, kCommStream);
  input(y, kCommStream);
  push(x, 1, 3);
  push(y, 2, 3);
  pull(w, 1, 3);
  pull(v, 1, 4);
  EXPECT_EQ(message(), "sound");
  p.instructions[3].attributes.set("peer", std::int64_t{1});
  EXPECT_EQ(message(),
            "instruction 2 (push 'x', micro-batch 0) and instruction 3 (push 'y', micro-batch 0) have the same key");
  p.instructions[3].attributes.set("peer", std::int64_t{2});
  p.instructions[5].attributes.set("key", std::int64_t{3});
  EXPECT_EQ(message(),
            "instruction 4 (pull 'w', micro-batch 0) and instruction 5 (pull 'v', micro-batch 0) have the same key");
}

// Where all else would wait until another stage has come to it.
TEST_F(Communication, MessagesBetweenStagesAreNotOnTheComputeStream) {
  const BufferId x = buffer("x", 0);
  const BufferId gone = buffer("gone", 64);
  Instruction& receive = launch("receive", {}, x, 0);
  receive.kind = Instruction::Kind::receive;
  receive.attributes.set("channel", std::string("activation"));
  receive.attributes.set("from", std::int64_t{0});
  receive.attributes.set("to", std::int64_t{1});
  EXPECT_EQ(message(),
            "instruction 0 (receive 'x', micro-batch 0) is on stream 0, where other work would wait for its peer");
  receive.stream = kReceiveActivationStream;
  EXPECT_EQ(message(), "sound");
  // Messages of one group that do not share a stream might come in another order than they are taken.
  Instruction second = receive;
  second.name = "gone";
  second.outputs = {{gone, type}};
  second.stream = kReceiveGradientStream;
  p.instructions.push_back(second);
  EXPECT_EQ(message(),
            "instruction 1 (receive 'gone', micro-batch 0) is on stream 9, and instruction 0 (receive 'x', micro-batch "
            "0) on stream 7: messages of one group have one stream");
}

// On GPUs that share memory the second receiver may take its message first, and its event says nothing of the other.
TEST_F(Communication, AMessageToOneStageSaysNothingOfOneToAnother) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x);
  input(y).records = 0;
  const auto send = [&](BufferId from, const char* name, std::size_t offset, std::int64_t to, std::int32_t records) {
    Instruction& i = launch("send", {from}, buffer(name, offset), kSendGradientStream);
    i.kind = Instruction::Kind::send;
    i.waits = {0};
    i.records = records;
    i.attributes.set("channel", std::string("gradient"));
    i.attributes.set("from", std::int64_t{2});
    i.attributes.set("to", to);
  };
  send(x, "x left", 128, 1, 1);
  send(y, "y left", 192, 0, 2);
  input(x).waits = {2};
  EXPECT_EQ(message(),
            "instruction 2 (send 'x left', micro-batch 0) and instruction 4 (input 'x', micro-batch 0) touch the same "
            "bytes, but nothing orders them");
  p.instructions.back().waits = {1};
  EXPECT_EQ(message(), "sound");
  // To one stage they are taken in order.
  p.instructions.back().waits = {2};
  p.instructions[3].attributes.set("to", std::int64_t{1});
  EXPECT_EQ(message(), "sound");
  // Their stream does not wait for them either.
  p.instructions.pop_back();
  p.instructions[3].outputs.front().buffer = p.instructions[2].outputs.front().buffer;
  EXPECT_EQ(message(),
            "instruction 2 (send 'x left', micro-batch 0) and instruction 3 (send 'y left', micro-batch 0) touch the "
            "same bytes, but nothing orders them");
}

TEST_F(Communication, TheDiskTakesAndGivesWholePages) {
  const BufferId x = buffer("x", 0);
  const BufferId there = page("there", kDiskTier, 0);
  input(x).records = 0;
  store(x, there).waits = {0};
  EXPECT_EQ(message(),
            "instruction 1 (store 'there', micro-batch 0) moves 'x', which does not lie on pages, to or from the disk");
  // The host's memory takes any bytes.
  p.buffers[static_cast<std::size_t>(there)].tier = kHostTier;
  p.tier_bytes[kHostTier] = kPage;
  EXPECT_EQ(message(), "sound");
  const BufferId from = page("from", 0, 1);
  const BufferId bytes = buffer("bytes", 0);
  p.buffers.back().tier = kDiskTier;
  p.tier_bytes[kDiskTier] = kPage;
  p.instructions.clear();
  input(from).records = 0;
  store(from, bytes).waits = {0};
  EXPECT_EQ(message(),
            "instruction 1 (store 'bytes', micro-batch 0) moves 'bytes', which does not lie on pages, to or from the "
            "disk");
}

// A message takes rows from where they begin; what is computed or combined is aligned.
TEST_F(Communication, MessagesBeginAnywhere) {
  const BufferId x = buffer("x", 0);
  const BufferId left = buffer("left", 64);
  input(x);
  Instruction& i = launch("send", {x}, left, kSendActivationStream);
  i.kind = Instruction::Kind::send;
  i.waits = {0};
  p.instructions[0].records = 0;
  i.attributes.set("channel", std::string("activation"));
  i.attributes.set("from", std::int64_t{0});
  i.attributes.set("to", std::int64_t{1});
  i.inputs = {{x, {DType::f32, {4}}, 4}};
  EXPECT_EQ(message(), "sound");
  i.inputs = {{x, {DType::f32, {4}}, 2}};
  EXPECT_EQ(message(), "instruction 1 (send 'left', micro-batch 0) uses buffer 'x' at offset 2, which is not aligned");
  p.instructions.pop_back();
  launch("scale", {x}, left).inputs = {{x, {DType::f32, {4}}, 4}};
  EXPECT_EQ(message(), "instruction 1 (scale 'left', micro-batch 0) uses buffer 'x' at offset 4, which is not aligned");
  p.instructions.pop_back();
  all_reduce(x, 0);
  p.instructions.back().inputs = p.instructions.back().outputs = {{x, {DType::f32, {4}}, 4}};
  EXPECT_EQ(message(),
            "instruction 1 (all_reduce 'x', micro-batch 0) uses buffer 'x' at offset 4, which is not aligned");
}

// Another stage sends what this one receives.
TEST_F(Communication, AStageDoesNotSendToItself) {
  const BufferId x = buffer("x", 0);
  const BufferId left = buffer("left", 64);
  Instruction& receive = launch("receive", {}, x, kReceiveActivationStream);
  receive.kind = Instruction::Kind::receive;
  receive.attributes.set("channel", std::string("activation"));
  receive.attributes.set("from", std::int64_t{0});
  receive.attributes.set("to", std::int64_t{1});
  Instruction send = receive;
  send.kind = Instruction::Kind::send;
  send.op = &registry.at("send");
  send.inputs = {{x, type}};
  send.outputs = {{left, type}};
  p.instructions.push_back(send);
  EXPECT_EQ(message(),
            "instruction 1 (send 'x', micro-batch 0) is on stream 7, and instruction 0 (receive 'x', micro-batch 0) on "
            "stream 7: messages of one group have one stream");
}

TEST_F(Communication, TheDiskGivesWholePages) {
  const BufferId from = page("from", kDiskTier, 0);
  p.buffers[0].state = 0;
  p.tier_state_bytes[kDiskTier] = kPage;
  const BufferId x = buffer("x", 0);
  load(from, x);
  EXPECT_EQ(message(),
            "instruction 0 (load 'x', micro-batch 0) moves 'x', which does not lie on pages, to or from the disk");
}

}  // namespace
}  // namespace trireme::program
