#include "trireme/program/happens_before.h"

#include <gtest/gtest.h>

#include "support/probe_ops.h"
#include "trireme/program/check.h"
#include "trireme/program/lifetimes.h"
#include "trireme/program/stream_order.h"

namespace trireme::program {
namespace {

// Programs by hand: pages, loads of states on the disk, messages and launches.
class HappensBeforeTest : public ::testing::Test {
 protected:
  BufferId page(const std::string& name, int tier = 0) {
    Buffer b;
    b.name = name;
    b.bytes = b.alignment = kPage;
    b.tier = tier;
    std::size_t& end = tier == 0 ? p.arena_bytes : p.tier_bytes[static_cast<std::size_t>(tier)];
    b.offset = end;
    end += kPage;
    if (tier != 0) {
      b.state = static_cast<ir::StateId>(p.buffers.size());
      p.tier_state_bytes[static_cast<std::size_t>(tier)] = end;
    }
    p.buffers.push_back(b);
    return static_cast<BufferId>(p.buffers.size()) - 1;
  }

  std::size_t add(Instruction i, std::int32_t stream, const std::vector<std::int32_t>& waits, std::int32_t records) {
    i.stream = stream;
    i.waits = waits;
    i.records = records;
    p.instructions.push_back(std::move(i));
    return p.instructions.size() - 1;
  }

  std::size_t load(BufferId from, BufferId to, std::int32_t records) {
    Instruction i;
    i.kind = Instruction::Kind::load;
    i.inputs = {{from, type}};
    i.outputs = {{to, type}};
    return add(std::move(i), kLoadStream, {}, records);
  }

  std::size_t send(BufferId from, std::int64_t to, std::int32_t records) {
    Instruction i;
    i.kind = Instruction::Kind::send;
    i.op = &registry.at("send");
    i.attributes.set("channel", std::string("gradient"));
    i.attributes.set("from", std::int64_t{2});
    i.attributes.set("to", to);
    i.inputs = {{from, type}};
    i.outputs = {{page("left"), {DType::u8, {1}}}};
    return add(std::move(i), kSendGradientStream, {}, records);
  }

  std::size_t launch(BufferId in, BufferId out, std::int32_t stream = 0, const std::vector<std::int32_t>& waits = {},
                     std::int32_t records = kNone) {
    Instruction i;
    i.op = &registry.at("scale");
    i.inputs = {{in, type}};
    i.outputs = {{out, type}};
    return add(std::move(i), stream, waits, records);
  }

  ir::Registry registry = testing::probe_registry();
  TensorType type{DType::f32, {16}};
  Program p;
};

TEST_F(HappensBeforeTest, StreamsStartInOrderButDiskCopiesAreNotDone) {
  const BufferId x = page("x", kDiskTier);
  const BufferId y = page("y", kDiskTier);
  const BufferId a = page("a");
  const BufferId b = page("b");
  const BufferId c = page("c");
  const std::size_t first = load(x, a, 0);
  const std::size_t second = load(y, b, 1);
  const std::size_t one = launch(b, c, 0, {1}, 2);
  const std::size_t other = launch(c, c, kCommStream, {2}, 3);
  const std::size_t two = launch(a, c, 0, {0, 3});
  HappensBefore order(p);
  order.start(first);
  EXPECT_FALSE(order.before(first, second));
  order.start(second);
  EXPECT_FALSE(order.before(first, second));
  order.wait(one, second);
  EXPECT_TRUE(order.before(second, one));
  EXPECT_FALSE(order.before(first, one));
  EXPECT_FALSE(order.before(other, one));  // has not started
  order.start(one);
  order.wait(other, one);
  order.start(other);
  EXPECT_TRUE(order.before(second, other));
  EXPECT_TRUE(order.before(one, other));
  EXPECT_FALSE(order.before(other, two));
  order.wait(two, first);
  order.wait(two, other);
  order.start(two);
  EXPECT_TRUE(order.before(first, two));
  EXPECT_TRUE(order.before(other, two));
  EXPECT_TRUE(order.before(one, two));
  // What was learned later was not known before.
  EXPECT_FALSE(order.before(first, other));
  EXPECT_FALSE(order.before(first, one));
  EXPECT_FALSE(order.before(two, one));
}

// A receiver takes the messages of its group in order, and nobody else's.
TEST_F(HappensBeforeTest, ASendIsKnownToBeDoneByTheEventsOfItsGroup) {
  const BufferId x = page("x");
  const std::size_t first = send(x, 1, 0);
  const std::size_t elsewhere = send(x, 0, 1);
  const std::size_t last = send(x, 1, 2);
  const std::size_t one = launch(x, x, 0, {1}, 3);
  const std::size_t two = launch(x, x, 0, {2}, 4);
  const std::size_t other = launch(x, x, kCommStream, {3});
  const std::size_t third = launch(x, x, kGradientStream, {4});
  HappensBefore order(p);
  for (const std::size_t i : {first, elsewhere, last}) order.start(i);
  EXPECT_FALSE(order.before(first, elsewhere));
  EXPECT_FALSE(order.before(first, last));
  order.wait(one, elsewhere);
  order.start(one);
  EXPECT_TRUE(order.before(elsewhere, one));
  EXPECT_FALSE(order.before(first, one));
  order.wait(two, last);
  order.start(two);
  EXPECT_TRUE(order.before(last, two));
  EXPECT_TRUE(order.before(first, two));
  EXPECT_FALSE(order.before(first, one));
  // And so for who waits for these.
  order.wait(other, one);
  EXPECT_TRUE(order.before(elsewhere, other));
  EXPECT_FALSE(order.before(first, other));
  order.wait(third, two);
  for (const std::size_t i : {first, elsewhere, last}) EXPECT_TRUE(order.before(i, third));
}

// The computation has waited for the second message, which went to another stage than the first.
TEST_F(HappensBeforeTest, AStreamWaitsForTheSendWhoseMemoryItWrites) {
  const BufferId x = page("x");
  const BufferId y = page("y");
  const BufferId z = page("z");
  p.buffers[static_cast<std::size_t>(z)].state = 0;
  std::swap(p.buffers[0].offset, p.buffers[2].offset);
  p.state_bytes = kPage;
  launch(z, x, 0, {}, 0);
  launch(z, y, 0, {}, 1);
  send(x, 1, 2);
  send(y, 0, 3);
  p.instructions[2].waits = {0};
  p.instructions[3].waits = {1};
  launch(z, y, 0, {3});
  launch(z, x, kGradientStream);
  order_stream(p, kGradientStream);
  EXPECT_EQ(p.instructions[5].waits, (std::vector<std::int32_t>{4, 2}));
  EXPECT_NO_THROW(check(p));
}

// The computation has waited for the second load: that says nothing of the first, which the other stream reads.
TEST_F(HappensBeforeTest, AStreamWaitsForTheDiskCopyThatItNeeds) {
  const BufferId x = page("x", kDiskTier);
  const BufferId y = page("y", kDiskTier);
  const BufferId a = page("a");
  const BufferId b = page("b");
  const BufferId c = page("c");
  const BufferId d = page("d");
  load(x, a, 0);
  load(y, b, 1);
  launch(b, c, 0, {1});
  launch(a, d, kGradientStream);
  order_stream(p, kGradientStream);
  EXPECT_EQ(p.instructions[3].waits, (std::vector<std::int32_t>{2, 0}));
  EXPECT_NO_THROW(check(p));
}

TEST_F(HappensBeforeTest, BuffersLiveUntilTheirOwnCopyIsDone) {
  const BufferId x = page("x", kDiskTier);
  const BufferId y = page("y", kDiskTier);
  const BufferId a = page("a");
  const BufferId b = page("b");
  const BufferId c = page("c");
  const std::size_t first = load(x, a, 0);
  const std::size_t second = load(y, b, 1);
  const std::size_t one = launch(b, c, 0, {1});
  const std::size_t two = launch(a, c, 0, {0});
  launch(c, c);
  std::vector<std::size_t> done = happens_after(p);
  EXPECT_EQ(done[first], two);
  EXPECT_EQ(done[second], one);
  // From the host's memory they come one after the other.
  for (const BufferId state : {x, y}) p.buffers[static_cast<std::size_t>(state)].tier = kHostTier;
  done = happens_after(p);
  EXPECT_EQ(done[first], one);
  EXPECT_EQ(done[second], one);
}

// The computation waits for the stream that has waited for the load, and later for one that waited for that.
TEST_F(HappensBeforeTest, BuffersLiveUntilTheirCopyIsKnownToBeDoneByAnyWay) {
  const BufferId x = page("x", kDiskTier);
  const BufferId a = page("a");
  const BufferId b = page("b");
  const BufferId c = page("c");
  const std::size_t loaded = load(x, a, 0);
  const std::size_t read = launch(a, b, kCommStream, {0}, 1);
  launch(c, c);
  const std::size_t read_again = launch(b, b, kGradientStream, {1}, 2);
  const std::size_t compute = launch(b, c, 0, {2});
  launch(c, c);
  const std::vector<std::size_t> done = happens_after(p);
  EXPECT_EQ(done[loaded], compute);
  EXPECT_EQ(done[read], compute);
  EXPECT_EQ(done[read_again], compute);
  EXPECT_EQ(done[compute], compute);
}

}  // namespace
}  // namespace trireme::program
