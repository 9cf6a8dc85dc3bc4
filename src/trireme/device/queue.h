#pragma once
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <span>

#include "trireme/device/kernel.h"

namespace trireme::device {

// Work handed to a device that is not the CPU, beside the thread that hands it over. Each lane does its work in order,
// and beside the other lanes but for what `wait` says. Errors of the device are thrown by the call that learns of them,
// `synchronize` at the latest.
class Queue {
 public:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };

  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  virtual void* native(std::size_t lane = 0) const = 0;  // for Launch::native_stream
  // Within the device's memory, or between it and a HostBlock or what `host_memory` gave.
  virtual void copy(void* to, const void* from, std::size_t bytes, std::size_t lane = 0) = 0;
  // Many of them within the device's memory at once; none may touch what another writes.
  virtual void copy_all(std::span<const Copy> copies, std::size_t lane) = 0;
  // A call on the host in the lane's order. It must not throw, nor touch the device.
  virtual void call(void (*function)(void*), void* context, std::size_t lane) = 0;
  virtual void synchronize() = 0;  // all lanes
  virtual void drain(std::size_t lane) = 0;
  // Whether `copy` may read this memory of the host.
  virtual bool reads(const void* memory) const = 0;

  // Events are points that other lanes wait for, numbered from 0. Each is recorded before it is waited for.
  virtual void record(std::size_t event, std::size_t lane) = 0;
  virtual void wait(std::size_t event, std::size_t lane) = 0;
  // An event as other queues of the same process know it; and waiting for theirs, which have been recorded.
  virtual void* point(std::size_t event) const = 0;
  virtual void follow(void* point, std::size_t lane) = 0;
  // From here on the other lanes follow what the first has been given; and the first follows them. All `but` one, if
  // that is not 0.
  virtual void spread(std::size_t but = 0) = 0;
  virtual void gather(std::size_t but = 0) = 0;

  // Points in the queue's work, numbered from 0; `seconds` is the time from one to a later one, once both have passed.
  virtual void mark(std::size_t point, std::size_t lane = 0) = 0;
  virtual double seconds(std::size_t from, std::size_t to) const = 0;

  // What is handed over while recording is kept instead of done; `replay` does all of it in the first lane, as often as
  // it is called. The other lanes belong to it between `spread` and `gather`. Recordings are numbered from 0.
  virtual void begin_recording() = 0;
  virtual std::size_t end_recording() = 0;
  virtual void drop_recording() noexcept = 0;  // ends it after a failure
  virtual void replay(std::size_t recording) = 0;
};

struct QueueShape {
  std::size_t marks = 0;
  std::size_t lanes = 1;
  std::size_t events = 0;
  std::size_t yielding = 0;  // a lane that the others go before where both have work; 0: none
};
// Null for the CPU, whose work is done by the thread that asks for it.
std::unique_ptr<Queue> make_queue(Kind kind, const QueueShape& shape = {});

// Memory of the host that the device of that kind copies to and from by itself. Starts as zeros.
class HostBlock {
 public:
  HostBlock(Kind kind, std::size_t bytes);
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Kind kind_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory of that kind for containers; what is small is ordinary memory. It lives as long as the process.
std::pmr::memory_resource* host_memory(Kind kind);

}  // namespace trireme::device
