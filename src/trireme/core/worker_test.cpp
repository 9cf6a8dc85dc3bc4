#include "trireme/core/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

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
  std::thread submitter([&] { worker.submit(1); });  // may find the first task still waiting
  begun.wait(0);
  submitter.join();  // while the first task runs
  go = true;
  go.notify_all();
  worker.synchronize();
  EXPECT_EQ(begun, 2);
}

}  // namespace
}  // namespace trireme
