#include "trireme/program/check_together.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/ops/all.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/ops/collective/message.h"

namespace trireme::program {
namespace {

// Hand-made programs: what matters here is what they exchange and in which order.
class Together : public ::testing::Test {
 protected:
  Instruction reduce(const std::string& name, const std::string& axis, const Shape& shape) const {
    Instruction i;
    i.kind = Instruction::Kind::collective;
    i.name = name;
    i.of = {name};
    i.op = &registry_.at(ops::kAllReduce);
    i.attributes = {{"axis", axis}, {"reduce", std::string("sum")}};
    i.inputs = i.outputs = {{0, {DType::f32, shape}}};
    return i;
  }
  Instruction message(Instruction::Kind kind, const std::string& of, int peer, int key, const Shape& shape) const {
    Instruction i;
    i.kind = kind;
    i.name = of;
    i.op = &registry_.at(kind == Instruction::Kind::push ? ops::kPush : ops::kPull);
    i.attributes = {{"peer", std::int64_t{peer}}, {"key", std::int64_t{key}}, {"of", of}};
    (kind == Instruction::Kind::push ? i.inputs : i.outputs) = {{0, {DType::f32, shape}}};
    return i;
  }
  static Program program(std::vector<Instruction> instructions) {
    Program p;
    p.name = "step";
    p.buffers.push_back({.name = "x", .bytes = 4096});
    p.instructions = std::move(instructions);
    return p;
  }
  static std::string refused(const std::vector<RoleProgram>& roles, const std::vector<Group>& groups) {
    try {
      check_together(roles, groups);
    } catch (const Error& e) {
      return e.message();
    }
    return "nothing";
  }

  ir::Registry registry_ = ops::builtin();
};

// What processes compare before the first step.
TEST_F(Together, DigestsTellWhatIsExchangedApart) {
  const auto pull = Instruction::Kind::pull;
  const std::vector<Program> programs = {
      program({reduce("g", "dp", {4}), reduce("h", "dp", {8})}),
      program({reduce("h", "dp", {8}), reduce("g", "dp", {4})}),
      program({reduce("g", "dp", {4})}),
      program({reduce("g", "tp", {4}), reduce("h", "dp", {8})}),
      program({message(pull, "w", 1, 0, {4})}),
      program({message(pull, "w", 1, 0, {8})}),
      program({message(pull, "w", 1, 1, {4})}),
  };
  std::set<std::uint64_t> digests;
  for (const Program& p : programs) digests.insert(communication_digest(p));
  EXPECT_EQ(digests.size(), programs.size());
  Program same = programs.front();
  same.instructions.front().name = "another name";  // is not exchanged
  EXPECT_EQ(communication_digest(same), communication_digest(programs.front()));
  same.instructions.front().of = {"another value"};
  EXPECT_NE(communication_digest(same), communication_digest(programs.front()));
  same = programs.front();
  same.instructions.front().micro = 1;
  EXPECT_NE(communication_digest(same), communication_digest(programs.front()));
}

TEST_F(Together, ACollectiveOfNoGroupIsNamed) {
  const Program first = program({reduce("g", "dp", {4})});
  const Program second = program({reduce("g", "dp", {8})});
  EXPECT_EQ(refused({{"stage 0", &first, {0}}, {"stage 1", &second, {1}}}, {{{"tp"}, {0, 1}}, {{"dp"}, {1}}}),
            "instruction 0 (all_reduce 'g', micro-batch 0) of stage 0 is along 'dp', and there is no such group");
  // One of messages is none of collectives.
  EXPECT_NE(refused({{"stage 0", &first, {0}}, {"stage 1", &second, {1}}}, {{{"dp"}, {0, 1}, "activation 0-1"}}),
            "nothing");
}

// Sums of the same types, in another order in one role: none waits for ever, and each adds up what does not belong
// together.
TEST_F(Together, SwappedCollectivesOfOneTypeAreNamed) {
  const std::vector<Group> groups = {{{"dp"}, {0, 1}}};
  const auto why = [&](const std::vector<Instruction>& a, const std::vector<Instruction>& b) {
    const Program first = program(a);
    const Program second = program(b);
    EXPECT_NE(communication_digest(first), communication_digest(second));
    return refused({{"stage 0", &first, {0}}, {"stage 1", &second, {1}}}, groups);
  };
  const Instruction g = reduce("g", "dp", {4});
  const Instruction h = reduce("h", "dp", {4});
  EXPECT_EQ(why({g, h}, {h, g}),
            "collective 0 along 'dp' makes 'g' of micro-batch 0, forward in instruction 0 (all_reduce 'g', micro-batch "
            "0) of stage 0 and 'h' of micro-batch 0, forward in instruction 0 (all_reduce 'h', micro-batch 0) of stage "
            "1");
  // One value of two micro-batches.
  Instruction later = g;
  later.micro = 1;
  EXPECT_NE(why({g, later}, {later, g}).find("makes 'g' of micro-batch 0, forward in"), std::string::npos);
  // One name in two graphs of a step.
  Instruction update = g;
  update.phase = ir::Phase::update;
  EXPECT_NE(why({g, update}, {update, g}).find("and 'g' of micro-batch 0, update in"), std::string::npos);
  // Two of the values of one bucket.
  Instruction bucket = g;
  bucket.of = {"g", "h", "k"};
  bucket.inputs = bucket.outputs = {g.inputs[0], g.inputs[0], g.inputs[0]};
  Instruction swapped = bucket;
  swapped.of = {"g", "k", "h"};
  EXPECT_NE(why({bucket}, {swapped}).find("makes 'h' of micro-batch 0"), std::string::npos);
}

// Of the same operands one role makes one value more.
TEST_F(Together, CollectivesThatMakeOtherNumbersOfValuesAreNamed) {
  const Program one = program({reduce("g", "dp", {4})});
  Program more = one;
  more.instructions.front().of = {"g", "h"};
  EXPECT_EQ(refused({{"stage 0", &one, {0}}, {"stage 1", &more, {1}}}, {{{"dp"}, {0, 1}}}),
            "collective 0 along 'dp' makes 1 values in instruction 0 (all_reduce 'g', micro-batch 0) of stage 0 and 2 "
            "in instruction 0 (all_reduce 'g', micro-batch 0) of stage 1");
}

// Slices may be of unequal extents; what all ranks know of them must be the same.
TEST_F(Together, HalosOfUnequalSlicesAreCompared) {
  const auto exchange = [&](int place, std::int64_t end, const Shape& shape) {
    Instruction i;
    i.kind = Instruction::Kind::collective;
    i.name = "x";
    i.of = {"x"};
    i.op = &registry_.at(ops::kHaloExchange);
    i.attributes = ops::Halo(1, place, {{0, 3}, {3, 7}}, {{0, end}, {2, 7}}).attributes("h");
    i.inputs = {{0, {DType::f32, shape}}};
    return i;
  };
  const std::vector<Group> groups = {{{"h"}, {0, 1}}};
  const Program first = program({exchange(0, 4, {2, 3, 5})});
  const Program second = program({exchange(1, 4, {2, 4, 5})});
  check_together(std::vector<RoleProgram>{{"h 0", &first, {0}}, {"h 1", &second, {1}}}, groups);
  const Program other_need = program({exchange(1, 5, {2, 4, 5})});
  EXPECT_NE(refused({{"h 0", &first, {0}}, {"h 1", &other_need, {1}}}, groups).find("need=[0,5,2,7]"),
            std::string::npos);
  const Program wider = program({exchange(1, 4, {2, 4, 6})});
  EXPECT_NE(refused({{"h 0", &first, {0}}, {"h 1", &wider, {1}}}, groups).find("in another"), std::string::npos);
}

TEST_F(Together, RolesThatMeetInOneOrderPass) {
  const Program a = program({reduce("g1", "dp", {4}), reduce("g2", "dp", {8})});
  const Program b = program({reduce("g1", "dp", {4}), reduce("g2", "dp", {8})});
  const TogetherReport report = check_together(
      std::vector<RoleProgram>{{"stage 0", &a, {0, 1}}, {"stage 1", &b, {2, 3}}}, std::vector<Group>{{{"dp"}, {0, 1}}});
  EXPECT_EQ(report.collectives, 2U);
}

TEST_F(Together, SwappedCollectivesAreNamed) {
  const Program a = program({reduce("g1", "dp", {4}), reduce("g2", "dp", {8})});
  const Program b = program({reduce("g2", "dp", {8}), reduce("g1", "dp", {4})});
  const std::string why = refused({{"stage 0", &a, {0}}, {"stage 1", &b, {1}}}, {{{"dp"}, {0, 1}}});
  EXPECT_NE(why.find("instruction 0 (all_reduce 'g1', micro-batch 0) of stage 0"), std::string::npos) << why;
  EXPECT_NE(why.find("instruction 0 (all_reduce 'g2', micro-batch 0) of stage 1"), std::string::npos) << why;
}

TEST_F(Together, ACollectiveThatOthersLackIsNamed) {
  const Program a = program({reduce("g1", "dp", {4}), reduce("g2", "dp", {8})});
  const Program b = program({reduce("g1", "dp", {4})});
  EXPECT_EQ(refused({{"stage 0", &a, {0}}, {"stage 1", &b, {1}}}, {{{"dp"}, {0, 1}}}),
            "instruction 1 (all_reduce 'g2', micro-batch 0) of stage 0 waits along 'dp' for stage 1, which has no such "
            "collective");
}

TEST_F(Together, CollectivesOfTwoGroupsInOppositeOrderAreADeadlock) {
  // Each group's own order agrees; together they cannot run.
  const Program a = program({reduce("g1", "dp", {4}), reduce("g2", "tp", {4})});
  const Program b = program({reduce("g2", "tp", {4}), reduce("g1", "dp", {4})});
  const std::string why = refused({{"stage 0", &a, {0}}, {"stage 1", &b, {1}}}, {{{"dp"}, {0, 1}}, {{"tp"}, {0, 1}}});
  EXPECT_EQ(why.find("a deadlock: "), 0U) << why;
  EXPECT_NE(why.find("'g1'"), std::string::npos) << why;
  EXPECT_NE(why.find("'g2'"), std::string::npos) << why;
}

// Two stages that send to each other on streams of their own.
class StagesThatSend : public Together {
 protected:
  Instruction between(bool sends, const std::string& channel, std::int64_t from, std::int32_t stream) const {
    Instruction i;
    i.kind = sends ? Instruction::Kind::send : Instruction::Kind::receive;
    i.name = channel;
    i.op = &registry_.at(sends ? ops::kSend : ops::kReceive);
    i.attributes = {{"key", std::int64_t{0}}, {"of", channel}, {"channel", channel}, {"from", from}, {"to", 1 - from}};
    (sends ? i.inputs : i.outputs) = {{0, {DType::f32, {4}}}};
    i.stream = stream;
    return i;
  }
  Instruction sending(std::int64_t stage) const {
    Instruction send = between(true, stage == 0 ? "activation" : "gradient", stage, kSendActivationStream);
    send.records = 0;
    return send;
  }
  Instruction receiving(std::int64_t stage) const {
    return between(false, stage == 0 ? "gradient" : "activation", 1 - stage, kReceiveGradientStream);
  }
  static Instruction waiting() {  // until the send has arrived
    Instruction waits;
    waits.kind = Instruction::Kind::copy;
    waits.name = "x";
    waits.waits = {0};
    return waits;
  }
  static std::string why(device::Kind device, std::vector<Instruction> first, std::vector<Instruction> second) {
    Program a = program(std::move(first));
    Program b = program(std::move(second));
    a.device = b.device = device;
    return refused({{"stage 0", &a, {0}}, {"stage 1", &b, {1}}}, {});
  }
};

TEST_F(StagesThatSend, OneThreadOfADeviceCannotWaitAndReceive) {
  const std::vector<Instruction> waits_first = {sending(0), waiting(), receiving(0)};
  const std::vector<Instruction> waits_last = {sending(0), receiving(0), waiting()};
  const std::vector<Instruction> other = {sending(1), waiting(), receiving(1)};
  EXPECT_EQ(why(device::Kind::cpu, waits_first, other), "nothing");
  EXPECT_EQ(why(device::Kind::cuda, waits_last, other), "nothing");
  EXPECT_EQ(why(device::Kind::cuda, waits_first, other).find("a deadlock of the threads that give devices"), 0U)
      << why(device::Kind::cuda, waits_first, other);
}

TEST_F(StagesThatSend, AMessageThatNobodySendsOrReceivesIsNamed) {
  EXPECT_EQ(why(device::Kind::cpu, {sending(0)}, {}),
            "instruction 0 (send 'activation', micro-batch 0) of stage 0 sends a message of 'activation 0-1' that "
            "nobody receives");
  EXPECT_EQ(why(device::Kind::cpu, {}, {receiving(1)}),
            "instruction 0 (receive 'activation', micro-batch 0) of stage 1 waits for a message of 'activation 0-1' "
            "that nobody sends");
}

class Messages : public Together {
 protected:
  Exchange table() const {
    Exchange e;
    e.pushes = {{3, "w/grad", {DType::f32, {4}}}};
    e.states = {{7, "w", {DType::f32, {4}}}};
    return e;
  }
  Program server_ = program({});
};

TEST_F(Messages, PushThenPullPasses) {
  const Program worker = program(
      {message(Instruction::Kind::push, "w/grad", 1, 3, {4}), message(Instruction::Kind::pull, "w", 1, 7, {4})});
  const Exchange e = table();
  EXPECT_EQ(check_together(std::vector<RoleProgram>{{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}},
                           std::vector<Group>{})
                .messages,
            2U);
}

TEST_F(Messages, APullBeforeThePushItAnswersIsADeadlock) {
  const Program worker = program(
      {message(Instruction::Kind::pull, "w", 1, 7, {4}), message(Instruction::Kind::push, "w/grad", 1, 3, {4})});
  const Exchange e = table();
  const std::string why = refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {});
  EXPECT_EQ(why.find("a deadlock: "), 0U) << why;
  EXPECT_NE(why.find("server 0 taking all pushes"), std::string::npos) << why;
}

TEST_F(Messages, AKeyThatNobodyPushesIsNamed) {
  const Program worker = program({message(Instruction::Kind::pull, "w", 1, 7, {4})});
  const Exchange e = table();
  EXPECT_EQ(refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {}),
            "server 0 waits for 'w/grad' under key 3, which nobody pushes");
}

TEST_F(Messages, BothSidesHaveTheSameType) {
  const Program worker = program(
      {message(Instruction::Kind::push, "w/grad", 1, 3, {5}), message(Instruction::Kind::pull, "w", 1, 7, {4})});
  const Exchange e = table();
  EXPECT_EQ(refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {}),
            "instruction 0 (push 'w/grad', micro-batch 0) of worker is f32[5], and server 0 has f32[4] under key 3");
}

TEST_F(Messages, AKeyThatNobodyPullsIsNamed) {
  const Program worker = program({message(Instruction::Kind::push, "w/grad", 1, 3, {4})});
  Exchange e = table();
  EXPECT_EQ(refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {}),
            "server 0 sends 'w' under key 7, which nobody pulls");
  e.results = std::exchange(e.states, {});
  EXPECT_EQ(refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {}),
            "server 0 sends 'w' under key 7, which nobody pulls");
}

// Of the same type, and the server would change one parameter by the gradient of another.
TEST_F(Messages, AnotherValueUnderAKeyIsNamed) {
  const Exchange e = table();
  const auto why = [&](const std::string& pushed, const std::string& pulled) {
    const Program worker = program(
        {message(Instruction::Kind::push, pushed, 1, 3, {4}), message(Instruction::Kind::pull, pulled, 1, 7, {4})});
    return refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {});
  };
  EXPECT_EQ(why("w/grad", "w"), "nothing");
  EXPECT_EQ(why("v/grad", "w"),
            "instruction 0 (push 'v/grad', micro-batch 0) of worker is of 'v/grad', and server 0 has 'w/grad' under "
            "key 3");
  EXPECT_EQ(why("w/grad", "v"),
            "instruction 1 (pull 'v', micro-batch 0) of worker is of 'v', and server 0 has 'w' under key 7");
}

TEST_F(Messages, AKeyThatTheServerLacksIsNamed) {
  const Exchange e = table();
  const auto why = [&](Instruction further) {
    const Program worker = program({message(Instruction::Kind::push, "w/grad", 1, 3, {4}), std::move(further),
                                    message(Instruction::Kind::pull, "w", 1, 7, {4})});
    return refused({{"worker", &worker, {0}}, {"server 0", &server_, {1}, &e}}, {});
  };
  // A key of the other direction is none of this one.
  EXPECT_EQ(why(message(Instruction::Kind::push, "v/grad", 1, 7, {4})),
            "instruction 1 (push 'v/grad', micro-batch 0) of worker: server 0 has nothing under key 7 to take");
  EXPECT_EQ(why(message(Instruction::Kind::pull, "v", 1, 3, {4})),
            "instruction 1 (pull 'v', micro-batch 0) of worker: server 0 has nothing under key 3 to answer with");
}

TEST_F(Messages, APeerThatTakesNoneIsNamed) {
  const Exchange e = table();
  const auto why = [&](int peer, std::vector<int> peers) {
    const Program worker = program({message(Instruction::Kind::push, "w/grad", peer, 3, {4})});
    return refused({{"worker", &worker, {0}, nullptr, std::move(peers)}, {"server 0", &server_, {1}, &e}}, {});
  };
  const auto said = [](int peer) {
    return fmt::format("instruction 0 (push 'w/grad', micro-batch 0) of worker is for rank {}, which takes no messages",
                       peer);
  };
  EXPECT_EQ(why(0, {}), said(0));  // a worker
  EXPECT_EQ(why(2, {}), said(2));  // nobody
  EXPECT_EQ(why(1, {1}), said(1));
  EXPECT_EQ(why(0, {1}), "server 0 sends 'w' under key 7, which nobody pulls");  // the server, as peer 0
}

// Each server takes all pushes, runs its program, in which they meet, and answers. A worker that waits for the one
// before it pushes to the other waits for ever.
TEST_F(Messages, AServersProgramIsBetweenItsPushesAndItsAnswers) {
  const auto push = Instruction::Kind::push;
  const auto pull = Instruction::Kind::pull;
  const Exchange e = table();
  const Program first = program({reduce("norm", "servers", {1})});
  const Program second = first;
  const auto why = [&](const std::vector<Instruction>& sent) {
    const Program worker = program(sent);
    return refused({{"worker", &worker, {0}}, {"server 0", &first, {1}, &e}, {"server 1", &second, {2}, &e}},
                   {{{"servers"}, {1, 2}}});
  };
  const Instruction to_first = message(push, "w/grad", 1, 3, {4});
  const Instruction to_second = message(push, "w/grad", 2, 3, {4});
  const Instruction from_first = message(pull, "w", 1, 7, {4});
  const Instruction from_second = message(pull, "w", 2, 7, {4});
  EXPECT_EQ(why({to_first, to_second, from_first, from_second}), "nothing");
  const std::string found = why({to_first, from_first, to_second, from_second});
  EXPECT_EQ(found.find("a deadlock: "), 0U) << found;
  for (const char* named : {"server 0 answering pulls", "'norm'", "server 1 taking all pushes"})
    EXPECT_NE(found.find(named), std::string::npos) << found;
}

TEST_F(Together, TheRoleThatWaitsIsNamed) {
  const Program a = program({reduce("g1", "dp", {4})});
  const Program b = program({reduce("g1", "dp", {4}), reduce("g2", "dp", {8})});
  EXPECT_EQ(refused({{"stage 0", &a, {0}}, {"stage 1", &b, {1}}}, {{{"dp"}, {0, 1}}}),
            "instruction 1 (all_reduce 'g2', micro-batch 0) of stage 1 waits along 'dp' for stage 0, which has no such "
            "collective");
}

// What only one role launches is none of the other's, whatever its attributes are called.
TEST_F(Together, OnlyCollectivesArePaired) {
  Instruction copy;
  copy.kind = Instruction::Kind::copy;
  copy.attributes = {{"axis", std::string("dp")}};
  const Program a = program({reduce("g", "dp", {4})});
  const Program b = program({copy, reduce("g", "dp", {4})});
  EXPECT_EQ(refused({{"stage 0", &a, {0}}, {"stage 1", &b, {1}}}, {{{"dp"}, {0, 1}}}), "nothing");
  EXPECT_EQ(communication_digest(a), communication_digest(b));
  EXPECT_NE(order_digest(a), order_digest(b));
}

TEST_F(Together, AnEventThatNothingRecordsIsNamed) {
  Program a = program({reduce("g", "dp", {4})});
  for (const std::int32_t event : {5, -1}) {
    a.instructions[0].waits = {event};
    EXPECT_EQ(refused({{"stage 0", &a, {0}}}, {{{"dp"}, {0}}}),
              fmt::format("instruction 0 (all_reduce 'g', micro-batch 0) of stage 0 waits for event {}, which nothing "
                          "records",
                          event));
  }
}

TEST_F(StagesThatSend, MessagesAreOfOneThing) {
  Instruction other = receiving(1);
  other.attributes.set("key", std::int64_t{4});
  EXPECT_EQ(
      why(device::Kind::cpu, {sending(0)}, {other}),
      "message 0 of 'activation 0-1' is instruction 0 (send 'activation', micro-batch 0) of stage 0 ('activation' "
      "under key 0 of micro-batch 0, f32[4]) on one side and instruction 0 (receive 'activation', micro-batch 0) "
      "of stage 1 ('activation' under key 4 of micro-batch 0, f32[4]) on the other");
  // Nobody receives what he has sent.
  EXPECT_EQ(why(device::Kind::cpu, {sending(0), receiving(1)}, {}).find("message 0 of 'activation 0-1' is"), 0U);
}

// On a CPU each waits in its send until the other receives, which comes behind it on the same stream.
TEST_F(StagesThatSend, AStreamOfACpuWaitsInItsSend) {
  const auto both = [&](std::int64_t stage) {
    std::vector<Instruction> of = {sending(stage), receiving(stage)};
    of[1].stream = of[0].stream;
    return of;
  };
  const std::string found = why(device::Kind::cpu, both(0), both(1));
  EXPECT_EQ(found.find("a deadlock: "), 0U) << found;
}

}  // namespace
}  // namespace trireme::program
