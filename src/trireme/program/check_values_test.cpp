// Values that are written over inside their own buffer, and states that are given what is not theirs: what a wrong
// reuse of buffers leaves behind.
#include <gtest/gtest.h>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/program/check.h"
#include "trireme/program/check_fixture.h"
#include "trireme/program/lower.h"
#include "trireme/program/pass.h"

namespace trireme::program {
namespace {

// Lowers a module by the passes, but for reuse, in whose place the instruction that makes `output` makes it in the
// buffer of its input `over`, which others may still read. What the checker says then.
class WrongReuse : public ::testing::Test {
 protected:
  std::string checked(const std::string& text, const std::string& output, const std::string& over) {
    const ir::Module module = ir::parse(text, registry_);
    LowerOptions options;
    if (module.has_graph("update")) options.tail = "update";
    Program program = emit(module, lay_out(module), options);
    for (const Pass& pass : program_passes()) {
      if (std::string(pass.name) != "reuse")
        pass.run(program, options);
      else if (!output.empty())
        put_over(program, output, over);
    }
    try {
      check(program);
    } catch (const Error& e) {
      return e.message();
    }
    return "sound";
  }

 private:
  static void put_over(Program& program, const std::string& output, const std::string& over) {
    BufferId from = kNone;
    BufferId to = kNone;
    for (const Instruction& i : program.instructions) {
      if (i.name != output) continue;
      from = i.outputs.front().buffer;
      for (const Operand& o : i.inputs)
        if (program.buffers[static_cast<std::size_t>(o.buffer)].name == over) to = o.buffer;
    }
    ASSERT_NE(from, kNone) << output;
    ASSERT_NE(to, kNone) << over;
    const auto rename = [&](Operand& o) {
      if (o.buffer == from) o.buffer = to;
    };
    for (Instruction& i : program.instructions) {
      for (Operand& o : i.inputs) rename(o);
      for (Operand& o : i.outputs) rename(o);
    }
    for (NamedOutput& o : program.outputs) rename(o.operand);
    Buffer& born = program.buffers[static_cast<std::size_t>(from)];
    Buffer& taken = program.buffers[static_cast<std::size_t>(to)];
    taken.last = std::max(taken.last, born.last);
    born.first = born.last = kNone;
  }

  ir::Registry registry_ = testing::probe_registry();
};

// %a has another reader behind the one that writes over it.
TEST_F(WrongReuse, OfAValueThatIsReadLater) {
  const std::string text = R"(module {
  graph micro {
    input %x : f32[16]
    %a = relu(%x) : f32[16]
    %b = scale(%a) {factor=2.0} : f32[16]
    %c = add(%b, %a) : f32[16]
    output c = %c
  }
}
)";
  EXPECT_EQ(checked(text, "", ""), "sound");
  EXPECT_EQ(checked(text, "c", "b"), "sound");  // where b dies
  EXPECT_EQ(checked(text, "b", "a"),
            "instruction 3 (add 'c', micro-batch 0) reads 'a', but instruction 2 (scale 'b', micro-batch 0) has "
            "written over it");
}

TEST_F(WrongReuse, OfAnOutput) {
  const std::string text = R"(module {
  graph micro {
    input %x : f32[16]
    %a = relu(%x) : f32[16]
    %b = scale(%a) {factor=2.0} : f32[16]
    output a = %a
    output b = %b
  }
}
)";
  EXPECT_EQ(checked(text, "", ""), "sound");
  EXPECT_EQ(checked(text, "b", "a"),
            "output 'a' of micro-batch 0 does not survive: instruction 2 (scale 'b', micro-batch 0) has written over "
            "it");
}

// Nobody reads @w again in this program, but the next one does.
TEST_F(WrongReuse, OfAState) {
  const std::string text = R"(module {
  state @w : f32[16]
  graph micro {
    %a = relu(@w) : f32[16]
    %b = scale(%a) {factor=2.0} : f32[16]
    output b = %b
  }
}
)";
  EXPECT_EQ(checked(text, "", ""), "sound");
  EXPECT_EQ(checked(text, "a", "w"),
            "instruction 0 (relu 'a', micro-batch 0) writes over state 'w' what is not its contents");
}

// Even where the update gives it new contents: a checkpoint may be reading it meanwhile.
TEST_F(WrongReuse, OfAStateThatIsWrittenLater) {
  const std::string text = R"(module {
  state @w : f32[16]
  graph micro {
    %a = relu(@w) : f32[16]
    %b = scale(%a) {factor=2.0} : f32[16]
    %n = relu(%b) : f32[16]
    write set @w = %n
    output b = %b
  }
}
)";
  EXPECT_EQ(checked(text, "", ""), "sound");
  EXPECT_EQ(checked(text, "a", "w"),
            "instruction 0 (relu 'a', micro-batch 0) writes over state 'w' what is not its contents");
}

// By hand: buffers of 64 bytes, with the values that operands name.
class Values : public CheckTest {
 protected:
  static void name(Instruction& i, const std::vector<std::int32_t>& inputs, std::int32_t output) {
    for (std::size_t k = 0; k < inputs.size(); ++k) i.inputs[k].value = inputs[k];
    i.outputs.front().value = output;
  }
};

TEST_F(Values, AStateIsLeftWithTheLastOfItsOwn) {
  const BufferId w = buffer("w", 0, 0);
  p.states = 1;
  p.values = {0, 0, 0};
  name(launch("scale", {w}, w), {0}, 2);
  EXPECT_EQ(message(), "sound");
  name(launch("scale", {w}, w), {2}, 1);
  EXPECT_EQ(message(), "instruction 1 (scale 'w', micro-batch 0) leaves in state 'w' what is to be written over there");
  p.instructions.clear();
  EXPECT_EQ(message(), "state 'w' is left as it was before the program, and is to be written");
}

// A state that is read before and after its update: each reader names which of the two it wants.
TEST_F(Values, OldAndNewContentsOfAState) {
  const BufferId w = buffer("w", 0, 0);
  const BufferId a = buffer("a", 64);
  p.states = 1;
  p.values = {0, 0, kNone};
  name(launch("scale", {w}, w), {0}, 1);
  name(launch("scale", {w}, a), {1}, 2);
  EXPECT_EQ(message(), "sound");
  p.instructions.back().inputs.front().value = 0;
  EXPECT_EQ(message(),
            "instruction 1 (scale 'a', micro-batch 0) reads 'w', but instruction 0 (scale 'w', micro-batch 0) has "
            "written over it");
  std::swap(p.instructions[0], p.instructions[1]);
  EXPECT_EQ(message(), "sound");
  p.instructions.front().inputs.front().value = 1;
  EXPECT_EQ(message(),
            "instruction 0 (scale 'a', micro-batch 0) reads 'w', but it still holds what state 'w' held before the "
            "program");
}

// What is added goes to the sum so far, and not to what has taken its place.
TEST_F(Values, ASumIsAddedToWhatItWas) {
  const BufferId x = buffer("x", 0);
  const BufferId sum = buffer("sum", 64);
  p.values = {kNone, kNone, kNone, kNone};
  name(input(x), {}, 0);
  name(launch("scale", {x}, sum), {0}, 1);
  Instruction& more = launch("scale", {x}, sum);
  name(more, {0}, 2);
  more.accumulate = true;
  more.sum = 1;
  EXPECT_EQ(message(), "sound");
  p.instructions[1].outputs.front().value = 3;
  EXPECT_EQ(
      message(),
      "instruction 2 (scale 'sum', micro-batch 0) reads 'sum', but instruction 1 (scale 'sum', micro-batch 0) has "
      "written over it");
}

// Each rank's own quarter is one value, the whole another.
TEST_F(Values, OfAShardAndOfTheWhole) {
  const BufferId x = buffer("x", 0);
  const BufferId a = buffer("a", 64);
  p.values = {kNone, kNone, kNone};
  name(input(x), {}, 0);
  name(launch("scale", {x}, x), {0}, 1);
  p.instructions.back().inputs.front() = {shard(x)};
  p.instructions.back().inputs.front().value = 0;
  p.instructions.back().outputs.front() = {shard(x)};
  p.instructions.back().outputs.front().value = 1;
  launch("scale", {x}, a);
  reads(shard(x));
  p.instructions.back().outputs = {{a, {DType::f32, {4}}}};
  name(p.instructions.back(), {1}, 2);
  EXPECT_EQ(message(), "sound");
  p.instructions.back().inputs.front().value = 0;
  EXPECT_EQ(message(),
            "instruction 2 (scale 'a', micro-batch 0) reads 'x', but instruction 1 (scale 'x', micro-batch 0) has "
            "written over it");
}

// Fifteen numbers, new in whole, of which four ranks read sixteen: the last one is padding, and stays what it was.
TEST_F(Values, PaddingOfAStateHasNone) {
  const BufferId w = buffer("w", 0, 0);
  const BufferId a = buffer("a", 64);
  p.states = 1;
  p.values = {0, 0, kNone};
  name(launch("scale", {w}, w), {0}, 1);
  p.instructions.back().inputs.front().type = p.instructions.back().outputs.front().type = {DType::f32, {15}};
  launch("scale", {w}, a);
  reads(shard(w));
  p.instructions.back().outputs = {{a, {DType::f32, {4}}}};
  name(p.instructions.back(), {1}, 2);
  EXPECT_EQ(message(), "sound");
  p.instructions.back().inputs.front().value = 0;
  EXPECT_NE(message().find("has written over it"), std::string::npos) << message();
}

// Of a message and of other work, whichever comes first.
TEST_F(CheckTest, MessagesHaveTheirStreamsToThemselves) {
  const BufferId x = buffer("x", 0);
  const BufferId gone = buffer("gone", 64);
  const BufferId a = buffer("a", 128);
  input(x).records = 0;
  Instruction& send = launch("send", {x}, gone, kSendActivationStream);
  send.kind = Instruction::Kind::send;
  send.waits = {0};
  send.attributes.set("channel", std::string("activation"));
  send.attributes.set("from", std::int64_t{0});
  send.attributes.set("to", std::int64_t{1});
  EXPECT_EQ(message(), "sound");
  launch("scale", {x}, a, kSendActivationStream);
  const std::string said =
      "instruction 1 (send 'gone', micro-batch 0) is on stream 6, where instruction 2 (scale 'a', micro-batch 0) would "
      "wait for its peer";
  EXPECT_EQ(message(), said);
  std::swap(p.instructions[1], p.instructions[2]);
  std::swap(p.instructions[1].waits, p.instructions[2].waits);
  EXPECT_EQ(message(),
            "instruction 2 (send 'gone', micro-batch 0) is on stream 6, where instruction 1 (scale 'a', micro-batch 0) "
            "would wait for its peer");
  Instruction& sum = p.instructions[1];
  sum.op = &registry.at("all_reduce");
  sum.kind = Instruction::Kind::collective;
  sum.attributes.set("axis", std::string("dp"));
  sum.attributes.set("parts", std::int64_t{2});
  sum.attributes.set("reduce", std::string("sum"));
  p.mesh = ir::parse_mesh("dp=2");
  EXPECT_EQ(message(),
            "instruction 2 (send 'gone', micro-batch 0) is on stream 6, where instruction 1 (all_reduce 'a', "
            "micro-batch 0) would wait for its peer");
}

// Ranks would take all of it for the first one's type.
TEST_F(CheckTest, OneCollectiveHasOneType) {
  const BufferId x = buffer("x", 0);
  const BufferId y = buffer("y", 64);
  input(x);
  input(y);
  Instruction& sum = launch("all_reduce", {x, y}, x);
  sum.outputs = sum.inputs;
  sum.kind = Instruction::Kind::collective;
  sum.attributes.set("axis", std::string("dp"));
  sum.attributes.set("parts", std::int64_t{2});
  sum.attributes.set("reduce", std::string("sum"));
  p.mesh = ir::parse_mesh("dp=2");
  EXPECT_EQ(message(), "sound");
  sum.inputs[1].type = sum.outputs[1].type = {DType::bf16, {16}};
  EXPECT_EQ(message(),
            "instruction 2 (all_reduce 'x', micro-batch 0): operands must have one dtype, got f32[16] and bf16[16]");
}

TEST_F(CheckTest, AGatherIsOfWholeShards) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  input(x);
  Instruction& gather = launch("all_gather", {x}, w);
  gather.kind = Instruction::Kind::collective;
  gather.inputs = {shard(x)};
  gather.attributes.set("axis", std::string("dp"));
  gather.attributes.set("parts", std::int64_t{4});
  gather.attributes.set("rows", std::vector<std::int64_t>{16});
  EXPECT_EQ(message(), "sound");
  gather.inputs = {shard(x, 0, 8)};  // half of it
  EXPECT_EQ(message(), "instruction 1 (all_gather 'w', micro-batch 0): 16 rows in 4 parts are not parts of f32[2]");
  gather.attributes.set("rows", std::vector<std::int64_t>{8});
  EXPECT_EQ(message(), "instruction 1 (all_gather 'w', micro-batch 0) writes f32[16], and its op makes f32[8]");
}

TEST_F(Values, AStateIsGivenAValueOfItsOwn) {
  const BufferId w = buffer("w", 0, 0);
  p.states = 1;
  p.values = {0, 0};
  for (const std::int32_t value : {kNone, 2}) {
    p.instructions.clear();
    name(launch("scale", {w}, w), {0}, value);
    EXPECT_EQ(message(), "instruction 0 (scale 'w', micro-batch 0) writes over state 'w' what is not its contents");
  }
  // The first instruction may leave the wrong one.
  p.values = {0, 0, 0};
  p.instructions.clear();
  name(launch("scale", {w}, w), {0}, 1);
  EXPECT_EQ(message(), "instruction 0 (scale 'w', micro-batch 0) leaves in state 'w' what is to be written over there");
  // Where checkpoints are staged nothing is to be left.
  name(p.instructions.back(), {0}, 2);
  buffer("checkpoint", 64, kStaging);
  EXPECT_EQ(message(), "sound");
}

// Each rank has a new second half of its quarter, and what it had of the first.
TEST_F(Values, OfHalvesOfAShard) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  p.values = {kNone, kNone, kNone, kNone};
  name(input(x), {}, 0);
  name(launch("scale", {x}, w), {0}, 1);
  launch("scale", {x}, w).inputs = {shard(x, 8, 8)};
  p.instructions.back().outputs = {shard(w, 8, 8)};
  name(p.instructions.back(), {0}, 2);
  const auto read = [&](const Operand& o, std::int32_t value) {
    launch("scale", {w}, a);
    reads(o);
    name(p.instructions.back(), {value}, 3);
    std::string found = message();
    p.instructions.pop_back();
    return found;
  };
  EXPECT_EQ(read(shard(w, 0, 8), 1), "sound");
  EXPECT_EQ(read(shard(w, 8, 8), 2), "sound");
  const std::string over =
      "instruction 3 (scale 'a', micro-batch 0) reads 'w', but instruction {} (scale 'w', "
      "micro-batch 0) has written over it";
  EXPECT_EQ(read(shard(w, 0, 8), 2), fmt::format(fmt::runtime(over), 1));
  EXPECT_EQ(read(shard(w, 8, 8), 1), fmt::format(fmt::runtime(over), 2));
  // The first half of the second rank's quarter, as all have it.
  EXPECT_EQ(read({w, {DType::f32, {0}}, 0}, 1), "sound");
  // Both halves, of two values.
  launch("scale", {x}, w).inputs = {shard(x, 0, 8)};
  p.instructions.back().outputs = {shard(w, 0, 8)};
  name(p.instructions.back(), {0}, 3);
  launch("scale", {w}, a);
  reads(shard(w, 8, 8));
  name(p.instructions.back(), {2}, 3);
  EXPECT_EQ(message(), "sound");
  reads(shard(w, 0, 8));
  name(p.instructions.back(), {3}, 3);
  EXPECT_EQ(message(), "sound");
}

// The last number of what is no state has a value like the others.
TEST_F(Values, OnlyStatesHavePadding) {
  const BufferId x = buffer("x", 0);
  const BufferId w = buffer("w", 64);
  const BufferId a = buffer("a", 128);
  p.values = {kNone, kNone, kNone, kNone};
  name(input(x), {}, 0);
  launch("scale", {x}, w).inputs = {shard(x)};
  p.instructions.back().outputs = {shard(w)};
  name(p.instructions.back(), {0}, 1);
  launch("scale", {x}, w);
  p.instructions.back().inputs[0].type = p.instructions.back().outputs[0].type = {DType::f32, {15}};
  name(p.instructions.back(), {0}, 2);
  launch("scale", {w}, a).inputs = {shard(w)};
  name(p.instructions.back(), {2}, 3);
  EXPECT_EQ(message(),
            "instruction 3 (scale 'a', micro-batch 0) reads 'w', but instruction 1 (scale 'w', micro-batch 0) has "
            "written over it");
}

}  // namespace
}  // namespace trireme::program
