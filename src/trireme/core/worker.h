#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/core/wake_promptly.h"

namespace trireme {

// When a thread gets a core that wakes while all of them compute: in its turn, or at once (`wake_promptly.h`).
enum class Waking : bool { fair, soon };

// A thread that does tasks one after another, in the order in which they are submitted. Submitting allocates nothing,
// and waits only while `capacity` tasks are waiting to be done.
//
//   Worker<std::size_t> worker(16, [&](std::size_t n) { … });   // what to do with a task; must not throw
//   worker.submit(1);
//   worker.submit(2);
//   worker.synchronize();                                       // both are done
//
// Destruction waits for what was submitted.
template <class Task>
class Worker {
 public:
  Worker(std::size_t capacity, std::function<void(Task&)> run, Waking waking = Waking::fair)
      : run_(std::move(run)), ring_(std::max<std::size_t>(capacity, 1)), thread_([this, waking] {
          if (waking == Waking::soon) wake_promptly();
          work();
        }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void submit(Task task) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ < ring_.size(); });
    ring_[(head_ + waiting_) % ring_.size()] = std::move(task);
    ++waiting_;
    lock.unlock();
    changed_.notify_all();
  }

  bool idle() const {
    const std::lock_guard lock(mutex_);
    return waiting_ == 0 && !busy_;
  }

  // Returns when everything submitted so far is done.
  void synchronize() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ == 0 && !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || waiting_ > 0; });
      if (waiting_ == 0) return;  // stopping, and everything submitted is done
      {
        Task task = std::move(ring_[head_]);
        head_ = (head_ + 1) % ring_.size();
        const bool was_full = waiting_-- == ring_.size();
        busy_ = true;
        lock.unlock();
        if (was_full) changed_.notify_all();  // there is room for a submitter that waits
        run_(task);
      }
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::function<void(Task&)> run_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Task> ring_;
  std::size_t head_ = 0;
  std::size_t waiting_ = 0;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when everything else exists
};

}  // namespace trireme
