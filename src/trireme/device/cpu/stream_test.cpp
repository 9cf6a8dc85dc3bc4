#include "trireme/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::device {
namespace {

// What tasks share, and a task that calls a function of it.
struct Shared {
  Streams* streams = nullptr;
  std::vector<std::size_t> seen;
  std::atomic<bool> go{false};
  int value = 0;
  int read = 0;
};
using Step = void (*)(Shared&, std::size_t);

template <Step step>
Streams::Work work(Shared& shared, std::size_t stream, std::size_t argument = 0) {
  return {[](void* context, std::size_t n) { step(*static_cast<Shared*>(context), n); }, &shared, argument, stream};
}

void issue(Streams& streams, const Streams::Work& work) { streams.issue({&work, 1}); }

void note(Shared& s, std::size_t n) { s.seen.push_back(n); }
void write(Shared& s, std::size_t n) {
  s.value = static_cast<int>(n);
  s.streams->record(0, 1);
}
void read(Shared& s, std::size_t) {
  s.streams->wait(0, 2);
  s.read = s.value;
}
void wait(Shared& s, std::size_t) {
  s.streams->wait(0, 0);
  s.read = s.value;
}
void wait_for_go(Shared& s, std::size_t) { s.go.wait(false); }

TEST(CpuStreams, StreamZeroIsTheCaller) {
  Shared shared;
  const auto streams = make_streams(Kind::cpu);
  EXPECT_FALSE(streams->asynchronous());
  issue(*streams, work<note>(shared, 0, 3));
  EXPECT_EQ(shared.seen, std::vector<std::size_t>{3});
  streams->synchronize();
}

TEST(CpuStreams, WorkOfAStreamIsDoneInOrder) {
  Shared shared;
  const auto streams = make_streams(Kind::cpu, {.streams = 2, .capacity = {0, 100}});
  for (std::size_t i = 0; i < 100; ++i) issue(*streams, work<note>(shared, 1, i));
  streams->join(1);
  ASSERT_EQ(shared.seen.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(shared.seen[i], i);
}

// What a stream does for one event may need what it is given after that: copies that end together, say. So the calling
// thread must not begin, and wait, before the others have all of their work.
TEST(CpuStreams, OtherStreamsHaveAllTheirWorkBeforeTheCallerBegins) {
  Shared shared;
  const auto streams = make_streams(Kind::cpu, {.streams = 2, .events = 1, .capacity = {0, 2}});
  shared.streams = streams.get();
  streams->fork();
  const std::vector<Streams::Work> all = {work<note>(shared, 1, 1), work<wait>(shared, 0), work<write>(shared, 1, 7)};
  streams->issue(all);
  streams->join(1);
  EXPECT_EQ(shared.read, 7);
}

TEST(CpuStreams, EventsOrderTwoStreamsInEveryRun) {
  Shared shared;
  const auto streams = make_streams(Kind::cpu, {.streams = 3, .events = 1, .capacity = {0, 1, 1}});
  shared.streams = streams.get();
  for (std::size_t run = 1; run <= 200; ++run) {
    streams->fork();
    issue(*streams, work<read>(shared, 2));
    issue(*streams, work<write>(shared, 1, run));
    streams->synchronize();
    EXPECT_TRUE(streams->is_done(0));
    ASSERT_EQ(shared.read, static_cast<int>(run));
  }
  streams->fork();
  EXPECT_FALSE(streams->is_done(0));
}

TEST(CpuStreams, SomeMayBeIdleWhileOthersAreNot) {
  Shared shared;
  const auto streams = make_streams(Kind::cpu, {.streams = 3, .events = 1, .capacity = {0, 2, 1}});
  shared.streams = streams.get();
  streams->fork();
  issue(*streams, work<wait_for_go>(shared, 1));
  issue(*streams, work<note>(shared, 2, 0));
  streams->synchronize(2);
  EXPECT_TRUE(streams->is_idle(0b101));
  EXPECT_FALSE(streams->is_idle());
  shared.go = true;
  shared.go.notify_all();
  streams->synchronize();
  EXPECT_TRUE(streams->is_idle());
}

TEST(CpuStreams, WaitingTellsForHowLong) {
  Shared shared;
  const auto streams = make_streams(Kind::cpu, {.streams = 2, .events = 1, .timestamps = 2, .capacity = {0, 2}});
  shared.streams = streams.get();
  streams->fork();
  issue(*streams, work<wait_for_go>(shared, 1));
  issue(*streams, work<write>(shared, 1, 1));
  EXPECT_FALSE(streams->is_done(0));
  shared.go = true;
  shared.go.notify_all();
  streams->timestamp(0);
  EXPECT_GE(streams->wait(0, 0), 0);
  streams->timestamp(1);
  EXPECT_GE(streams->seconds(0, 1), 0);
  EXPECT_EQ(streams->wait(0, 0), 0);  // it has been recorded
  EXPECT_GE(streams->join(1), 0);
}

TEST(CpuStreams, CopiesAndCallsAreDoneAtOnce) {
  const auto streams = make_streams(Kind::cpu);
  const std::vector<int> from = {1, 2, 3};
  std::vector<int> to(3);
  EXPECT_TRUE(streams->reads(from.data()));
  streams->copy(to.data(), from.data(), 3 * sizeof(int));
  EXPECT_EQ(to, from);
  const Streams::Copy back[] = {{&to[0], &from[2], sizeof(int)}, {&to[1], &from[0], sizeof(int)}};
  streams->copy_all(back, 0);
  EXPECT_EQ(to, (std::vector<int>{3, 1, 3}));
  bool called = false;
  streams->call([](void* context) { *static_cast<bool*>(context) = true; }, &called, 0);
  EXPECT_TRUE(called);
}

TEST(CpuStreams, NothingIsCaptured) {
  const auto streams = make_streams(Kind::cpu);
  EXPECT_THROW(streams->begin_capture(), Error);
  EXPECT_THROW(streams->replay(0), Error);
}

}  // namespace
}  // namespace trireme::device
