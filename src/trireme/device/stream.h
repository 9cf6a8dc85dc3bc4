#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::device {

// A point in a stream's work. Events are numbered by use: `wait(n)` returns once `record` has been called n times, so
// an event is used again in every run of a program without being reset.
class Event {
 public:
  void record() {
    count_.fetch_add(1, std::memory_order_release);
    count_.notify_all();
  }
  void wait(std::uint64_t count) const {
    for (std::uint64_t now = count_.load(std::memory_order_acquire); now < count;
         now = count_.load(std::memory_order_acquire))
      count_.wait(now, std::memory_order_acquire);
  }
  bool recorded(std::uint64_t count) const { return count_.load(std::memory_order_acquire) >= count; }

 private:
  std::atomic<std::uint64_t> count_{0};
};

// Work done in order beside the thread that submits it: on the CPU, a thread of its own. Submitting allocates nothing
// while no more than `capacity` tasks are waiting.
class Stream {
 public:
  struct Task {
    void (*run)(void* context, std::size_t argument);  // must not throw
    void* context;
    std::size_t argument;
  };

  explicit Stream(std::size_t capacity);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void submit(const Task& task);
  // Returns when everything submitted so far is done.
  void synchronize();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> ring_;
  std::size_t head_ = 0;
  std::size_t waiting_ = 0;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trireme::device
