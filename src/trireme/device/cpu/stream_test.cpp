#include "trireme/device/stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::device {
namespace {

TEST(Stream, RunsEverythingInOrder) {
  struct Log {
    std::vector<std::size_t> seen;
  } log;
  {
    Stream stream(4);  // fewer places than tasks: submitting waits for room
    for (std::size_t i = 0; i < 1000; ++i)
      stream.submit({[](void* context, std::size_t n) { static_cast<Log*>(context)->seen.push_back(n); }, &log, i});
    stream.synchronize();
    EXPECT_EQ(log.seen.size(), 1000U);
    stream.submit({[](void* context, std::size_t n) { static_cast<Log*>(context)->seen.push_back(n); }, &log, 1000});
  }  // the destructor waits for what was submitted
  ASSERT_EQ(log.seen.size(), 1001U);
  for (std::size_t i = 0; i < log.seen.size(); ++i) EXPECT_EQ(log.seen[i], i);
}

TEST(Stream, EventsOrderTwoStreams) {
  struct Shared {
    Event event;
    int value = 0;
    int seen = 0;
  } shared;
  for (std::uint64_t run = 1; run <= 200; ++run) {
    Stream writer(1);
    Stream reader(1);
    reader.submit({[](void* context, std::size_t n) {
                     auto* s = static_cast<Shared*>(context);
                     s->event.wait(n);
                     s->seen = s->value;
                   },
                   &shared, run});
    writer.submit({[](void* context, std::size_t n) {
                     auto* s = static_cast<Shared*>(context);
                     s->value = static_cast<int>(n);
                     s->event.record();
                   },
                   &shared, run});
    writer.synchronize();
    reader.synchronize();
    ASSERT_EQ(shared.seen, static_cast<int>(run));
  }
}

TEST(Stream, SynchronizeOnAnIdleStreamReturns) {
  Stream stream(1);
  stream.synchronize();
  stream.synchronize();
}

}  // namespace
}  // namespace trireme::device
