#include "trireme/core/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

namespace trireme {
namespace {

TEST(Worker, RunsEverythingInOrder) {
  std::vector<std::size_t> seen;
  {
    Worker<std::size_t> worker(4, [&](std::size_t n) { seen.push_back(n); });  // fewer places than tasks
    for (std::size_t i = 0; i < 1000; ++i) worker.submit(i);
    worker.synchronize();
    EXPECT_TRUE(worker.idle());
    EXPECT_EQ(seen.size(), 1000U);
    worker.submit(1000);
  }  // the destructor waits for what was submitted
  ASSERT_EQ(seen.size(), 1001U);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
}

TEST(Worker, IsNotIdleWhileATaskRuns) {
  std::atomic<bool> go{false};
  Worker<int> worker(1, [&](int) { go.wait(false); });
  worker.submit(0);
  EXPECT_FALSE(worker.idle());
  go = true;
  go.notify_all();
  worker.synchronize();
  EXPECT_TRUE(worker.idle());
}

TEST(Worker, LetsGoOfATaskWhenItIsDone) {
  const auto task = std::make_shared<int>(7);
  Worker<std::shared_ptr<int>> worker(4, [](std::shared_ptr<int>&) {});
  worker.submit(task);
  worker.synchronize();
  EXPECT_EQ(task.use_count(), 1);
}

TEST(Worker, SynchronizeOnAnIdleWorkerReturns) {
  const Worker<int> worker(1, [](int) {});
  worker.synchronize();
  worker.synchronize();
}

TEST(Worker, SubmittingWaitsOnlyWhileTasksAreWaiting) {
  std::atomic<int> begun{0};
  std::atomic<bool> go{false};
  Worker<int> worker(1, [&](int) {
    ++begun;
    begun.notify_all();
    go.wait(false);
  });
  worker.submit(0);
  // May find the first task still waiting; must not wait for it to end.
  const std::future<void> submitted = std::async(std::launch::async, [&] { worker.submit(1); });
  const auto in_time = submitted.wait_for(std::chrono::seconds(10));
  EXPECT_EQ(in_time, std::future_status::ready) << "submitting waits while a task runs";
  EXPECT_EQ(begun, 1);
  go = true;  // else everything would wait for ever
  go.notify_all();
  worker.synchronize();
  EXPECT_EQ(begun, 2);
}

}  // namespace
}  // namespace trireme
