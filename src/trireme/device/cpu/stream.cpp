#include "trireme/device/cpu/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/core/worker.h"

namespace trireme::device::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Counts how often it was recorded, so that it is used again in every run without being reset.
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

// Streams are threads, but for the first, which is the caller's. The first computes; the others communicate and copy,
// next to the computation only if they get a core while it has them all.
class ThreadStreams final : public Streams {
 public:
  explicit ThreadStreams(const StreamShape& shape)
      : events_(shape.events), times_(shape.timestamps), workers_(shape.streams) {
    for (std::size_t s = 1; s < shape.streams; ++s) {
      const std::size_t capacity = s < shape.capacity.size() ? shape.capacity[s] : 0;
      if (capacity > 0)
        workers_[s] = std::make_unique<Worker<Work>>(
            capacity, [](Work& work) { work.run(work.context, work.argument); }, Waking::soon);
    }
  }

  void issue(std::span<const Work> work) override {
    for (const Work& w : work)
      if (w.stream != 0) workers_[w.stream]->submit(w);
    for (const Work& w : work)
      if (w.stream == 0) w.run(w.context, w.argument);
  }
  bool asynchronous() const override { return false; }

  void* native(std::size_t) const override { return nullptr; }
  void copy(void* to, const void* from, std::size_t bytes, std::size_t) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void copy_runs(const Runs& to, const Runs& from, std::size_t bytes, std::size_t count, std::size_t stream) override {
    for (std::size_t i = 0; i < count; ++i) copy(to.first + i * to.stride, from.first + i * from.stride, bytes, stream);
  }
  void copy_all(std::span<const Copy> copies, std::size_t stream) override {
    for (const Copy& c : copies) copy(c.to, c.from, c.bytes, stream);
  }
  void call(void (*function)(void*), void* context, std::size_t) override { function(context); }
  bool reads(const void*) const override { return true; }

  void fork(Set) override { ++forks_; }
  double join(std::size_t stream) override {
    if (!workers_[stream]) return 0;
    const auto begin = Clock::now();
    workers_[stream]->synchronize();
    return seconds_since(begin);
  }
  void synchronize() override {
    for (std::size_t s = 0; s < workers_.size(); ++s) synchronize(s);
  }
  void synchronize(std::size_t stream) override {
    if (workers_[stream]) workers_[stream]->synchronize();
  }

  bool is_idle(Set of) const override {
    for (std::size_t s = 0; s < workers_.size(); ++s)
      if ((of >> s & 1U) != 0 && workers_[s] && !workers_[s]->idle()) return false;
    return true;
  }

  void record(std::size_t event, std::size_t) override { events_[event].record(); }
  double wait(std::size_t event, std::size_t) override {
    if (events_[event].recorded(forks_)) return 0;
    const auto begin = Clock::now();
    events_[event].wait(forks_);
    return seconds_since(begin);
  }
  bool is_done(std::size_t event) const override { return events_[event].recorded(forks_); }
  void* handle(std::size_t) const override { fail("the CPU's events have no handles"); }
  void wait_for(void*, std::size_t) override { fail("the CPU's events have no handles"); }

  void timestamp(std::size_t number, std::size_t) override { times_[number] = Clock::now(); }
  double seconds(std::size_t from, std::size_t to) const override {
    return std::chrono::duration<double>(times_[to] - times_[from]).count();
  }

  void begin_capture() override { fail("nothing is captured on the CPU"); }
  std::size_t end_capture() override { fail("nothing is captured on the CPU"); }
  void drop_capture() noexcept override {}
  void replay(std::size_t) override { fail("nothing is captured on the CPU"); }

 private:
  std::vector<Event> events_;
  std::vector<Clock::time_point> times_;
  std::uint64_t forks_ = 0;                             // written while no other stream has work
  std::vector<std::unique_ptr<Worker<Work>>> workers_;  // last: they end before anything they use; null: no work
};

}  // namespace

std::unique_ptr<Streams> make_streams(const StreamShape& shape) { return std::make_unique<ThreadStreams>(shape); }

}  // namespace trireme::device::cpu
