#pragma once
#include <atomic>
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
//
// Kernels follow one another within microseconds, and waking a thread that sleeps on another core takes longer than a
// small kernel does. So a worker looks for the next run for a while before it sleeps, where every thread of the pools
// of this process has a core; and a run waits for the tasks that were taken, never for a worker that came too late to
// take one.
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
  void take_tasks(std::uint32_t run, int worker);

  // The number of the run (the upper half) and its next task. A task is taken by a compare-and-swap of both, so a
  // worker that still holds a run of before takes nothing of it.
  alignas(64) std::atomic<std::uint64_t> next_{0};
  std::atomic<Erased> task_{nullptr};  // of the present run, as the two that follow
  std::atomic<void*> context_{nullptr};
  std::atomic<std::int64_t> tasks_{0};
  alignas(64) std::atomic<std::int64_t> done_{0};  // tasks of the present run
  alignas(64) std::atomic<std::uint32_t> run_{0};  // its number: what workers wait for
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // of error_
  std::exception_ptr error_;
  std::vector<std::thread> workers_;  // last: they start when everything else exists
};

}  // namespace trireme
