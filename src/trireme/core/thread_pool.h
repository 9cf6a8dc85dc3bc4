#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

// The compute threads of one rank. The calling thread works too, so a pool of one has no extra thread.
//
// Work is split into tasks whose number the caller chooses from the problem alone, never from the thread count: that is
// what keeps results the same for any number of threads. Tasks are taken in order by whichever thread is free.
//
//   pool.run(blocks, [&](std::int64_t block) { … });                    // one call per block
//   pool.ranges(rows, 64, [&](std::int64_t begin, std::int64_t end) { … });   // blocks of at most 64 rows
//
// Nothing is allocated. The first exception thrown by a task is rethrown to the caller. One run at a time per pool.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  template <class F>
  void run(std::int64_t tasks, F&& task) {
    using Function = std::remove_reference_t<F>;
    run_erased(
        tasks, [](void* f, std::int64_t i, int) { (*static_cast<Function*>(f))(i); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

  // As `run`, but `task(i, worker)` also learns which worker it is on: 0 … threads()-1, for per-thread scratch.
  template <class F>
  void run_with_worker(std::int64_t tasks, F&& task) {
    using Function = std::remove_reference_t<F>;
    run_erased(
        tasks, [](void* f, std::int64_t i, int worker) { (*static_cast<Function*>(f))(i, worker); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

  template <class F>
  void ranges(std::int64_t n, std::int64_t block, F&& body) {
    run((n + block - 1) / block,
        [&](std::int64_t i) { body(i * block, i * block + block < n ? i * block + block : n); });
  }

 private:
  using Erased = void (*)(void*, std::int64_t, int);
  void run_erased(std::int64_t tasks, Erased task, void* context);
  void work(int worker);
  void take_tasks(int worker);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::uint64_t generation_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  Erased task_ = nullptr;
  void* context_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::exception_ptr error_;
};

}  // namespace trireme
