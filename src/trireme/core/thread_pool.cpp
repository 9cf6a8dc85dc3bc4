#include "trireme/core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trireme/core/error.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread looks before it sleeps: longer than the gaps between the kernels of a step and than waking a
// thread takes (up to 100 µs in virtual machines), short against what another process would lose by it.
constexpr auto kLook = std::chrono::microseconds(200);

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Threads of all pools of this process that have workers. A pool of one is no more than its caller, and many of them do
// nothing most of the time: a loader's, and that of an executor's other streams.
std::atomic<int>& pool_threads() {
  static std::atomic<int> count{0};
  return count;
}

bool cores_for_all() {
  static const int cores = usable_cores();
  return pool_threads().load(std::memory_order_relaxed) <= cores;
}

// True once ready(); looks for a while where each thread has a core, once elsewhere. A look during which another
// process took the core says that cores are wanted: looking would spend this thread's share of them, so that it sleeps
// instead for a number of times.
template <class Ready>
bool look(Ready&& ready) {
  constexpr auto kTaken = std::chrono::microseconds(100);
  constexpr int kSleeps = 1000;
  thread_local int sleeps = 0;
  if (ready()) return true;
  if (!cores_for_all()) return false;
  if (sleeps > 0) {
    --sleeps;
    return false;
  }
  Clock::time_point now = Clock::now();
  const Clock::time_point until = now + kLook;
  do {
    for (int i = 0; i < 32; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (ready()) return true;
    }
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (now - before > kTaken) sleeps = kSleeps;
  } while (now < until && sleeps == 0);
  return ready();
}

constexpr int kIndexBits = 32;
constexpr std::uint64_t kClosed = 0xffff'ffff;  // an index that no run has

}  // namespace

ThreadPool::ThreadPool(int threads) {
  pool_threads() += threads > 1 ? threads : 0;
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++run_;
  run_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  pool_threads() -= workers_.empty() ? 0 : threads();
}

void ThreadPool::run_erased(std::int64_t tasks, Erased task, void* context) {
  if (tasks <= 0) return;
  if (tasks == 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  TRI_CHECK(tasks < static_cast<std::int64_t>(kClosed), "{} tasks in one run", tasks);
  const std::uint32_t run = run_.load(std::memory_order_relaxed) + 1;
  // A worker that sees anything of this run sees that the one before is closed.
  next_.store(std::uint64_t{run} << kIndexBits | kClosed, std::memory_order_relaxed);
  task_.store(task, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  tasks_.store(tasks, std::memory_order_release);
  done_.store(0, std::memory_order_release);
  next_.store(std::uint64_t{run} << kIndexBits, std::memory_order_release);
  // Sequentially consistent: it must not pass notify_all's look at whether a worker sleeps, or that worker sleeps on.
  run_.store(run);
  run_.notify_all();
  take_tasks(run, 0);
  const auto is_done = [&] { return done_.load(std::memory_order_acquire) == tasks; };
  if (!look(is_done))
    for (std::int64_t now = done_.load(std::memory_order_acquire); now != tasks;
         now = done_.load(std::memory_order_acquire))
      done_.wait(now, std::memory_order_acquire);
  if (!failed_.load(std::memory_order_relaxed)) return;
  failed_ = false;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  std::rethrow_exception(error);
}

void ThreadPool::take_tasks(std::uint32_t run, int worker) {
  std::int64_t taken = 0;
  const std::int64_t tasks = tasks_.load(std::memory_order_acquire);
  const Erased task = task_.load(std::memory_order_acquire);
  void* const context = context_.load(std::memory_order_acquire);
  std::uint64_t next = next_.load(std::memory_order_acquire);
  for (;;) {
    const auto index = static_cast<std::int64_t>(next & kClosed);
    // What was read above belongs to `run` when the swap succeeds: the run cannot end before this task is done.
    if (next >> kIndexBits != run || index >= tasks) break;
    if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        task(context, index, worker);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        failed_ = true;
      }
    }
    ++taken;
    next = next_.load(std::memory_order_acquire);
  }
  if (taken == 0) return;
  done_.fetch_add(taken, std::memory_order_acq_rel);
  if (worker != 0) done_.notify_one();
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto has_changed = [&] { return run_.load(std::memory_order_acquire) != seen; };
    if (!look(has_changed)) run_.wait(seen, std::memory_order_acquire);
    if (stopping_) return;
    const std::uint32_t run = run_.load(std::memory_order_acquire);
    if (run == seen) continue;
    seen = run;
    take_tasks(run, worker);
  }
}

}  // namespace trireme
