#include "trireme/core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace trireme {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> count(static_cast<std::size_t>(tasks));
    pool.run(tasks, [&](std::int64_t i) { ++count[static_cast<std::size_t>(i)]; });
    for (const auto& c : count) ASSERT_EQ(c.load(), 1);
  }
}

TEST_P(ThreadPoolTest, RangesCoverExactly) {
  ThreadPool pool(GetParam());
  for (const std::int64_t n : {0, 1, 63, 64, 65, 1000})
    for (const std::int64_t block : {1, 7, 64, 5000}) {
      std::vector<std::atomic<int>> count(static_cast<std::size_t>(n));
      pool.ranges(n, block, [&](std::int64_t begin, std::int64_t end) {
        ASSERT_LE(end - begin, block);
        ASSERT_EQ(begin % block, 0);
        for (std::int64_t i = begin; i < end; ++i) ++count[static_cast<std::size_t>(i)];
      });
      for (const auto& c : count) ASSERT_EQ(c.load(), 1);
    }
}

TEST_P(ThreadPoolTest, WorkersAreNumbered) {
  ThreadPool pool(GetParam());
  std::atomic<int> wrong{0};
  // Two tasks on one worker number at the same time would share scratch.
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(pool.threads()));
  pool.run_with_worker(500, [&](std::int64_t, int worker) {
    if (worker < 0 || worker >= pool.threads() || inside[static_cast<std::size_t>(worker)].fetch_add(1) != 0) ++wrong;
    inside[static_cast<std::size_t>(worker)].fetch_sub(1);
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(ThreadPoolTest, RethrowsAndGoesOn) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 50; ++repeat) {
    EXPECT_THROW(pool.run(100,
                          [](std::int64_t i) {
                            if (i % 10 == 3) throw std::runtime_error("task");
                          }),
                 std::runtime_error);
    std::atomic<int> done{0};
    pool.run(100, [&](std::int64_t) { ++done; });
    ASSERT_EQ(done.load(), 100);
  }
}

TEST_P(ThreadPoolTest, ErrorKeepsItsMessageAndSkipsTheRest) {
  ThreadPool pool(GetParam());
  std::atomic<int> started{0};
  try {
    pool.run(1'000'000, [&](std::int64_t) {
      ++started;
      throw std::runtime_error("first");
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "first");
  }
  EXPECT_LE(started.load(), 1000);
}

TEST_P(ThreadPoolTest, ManyShortRuns) {
  ThreadPool pool(GetParam());
  std::int64_t expected = 0;
  std::atomic<std::int64_t> total{0};
  for (std::int64_t run = 0; run < 3000; ++run) {
    pool.run(run % 5, [&](std::int64_t i) { total += i; });
    expected += (run % 5) * (run % 5 - 1) / 2;
  }
  EXPECT_EQ(total.load(), expected);
}

// More pools than cores, coming and going: workers look, sleep, are woken and end in every order.
TEST(ThreadPool, ManyPoolsOnFewCoresFinishEveryRun) {
  constexpr int kPools = 6, kLives = 60, kRuns = 100;
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> users;
  for (int user = 0; user < kPools; ++user)
    users.emplace_back([&, user] {
      for (int life = 0; life < kLives; ++life) {
        ThreadPool pool(1 + (user + life) % 4);
        for (int run = 0; run < kRuns; ++run) {
          pool.run(1 + run % 7, [&](std::int64_t) { ++total; });
          if (run % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));  // workers fall asleep
        }
      }
    });
  for (std::thread& user : users) user.join();
  std::int64_t expected = 0;
  for (int run = 0; run < kRuns; ++run) expected += 1 + run % 7;
  EXPECT_EQ(total.load(), expected * kPools * kLives);
}

TEST(ThreadPool, ThreadsWorkTogether) {
  ThreadPool pool(2);
  std::atomic<int> waiting{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  // Each task waits for the other: a pool that ran them one after another would never get past.
  pool.run(2, [&](std::int64_t) {
    ++waiting;
    while (waiting.load() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

}  // namespace
}  // namespace trireme
