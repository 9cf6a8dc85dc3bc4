#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/device/kernel.h"

namespace trireme::device {

// Ordered work on a device. Each stream, by its number, does its work in order and concurrently with the others, but
// for what waits for an event. There is one such object for each executor.
//
//   streams.fork();                          // all streams start after what stream 0 has been given
//   streams.issue({{run, context, 7, 1}});   // run(context, 7) gives stream 1 its work:
//                                            //   streams.wait(event, 1); kernel.launch(…); streams.record(other, 1);
//   streams.join(1);                         // stream 0 goes on when stream 1 has done all that
//   streams.synchronize();
//
// On the CPU stream 0 is the calling thread, each other stream a thread of its own, and events are counters. A launch
// there is the work itself, so what is issued runs in its stream: the other streams are given theirs before the calling
// thread begins its own. On CUDA streams and events are CUDA's, what is issued
// runs at once, and all that it calls returns before the work is done. Errors of a device are thrown by the call that
// learns of them, `synchronize` at the latest.
class Streams {
 public:
  // What gives a stream work, by launching kernels and by the calls below with that stream's number.
  struct Work {
    void (*run)(void* context, std::size_t argument);  // must not throw
    void* context;
    std::size_t argument;
    std::size_t stream;
  };
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };

  Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  virtual ~Streams() = default;

  // Each stream does its own of them in the order given. An event that one waits for must be recorded by one before it.
  virtual void issue(std::span<const Work> work) = 0;
  // Whether work is done after the call that gives it: then what a call names of the host's memory must stay, and be
  // memory that `reads` accepts.
  virtual bool asynchronous() const = 0;

  virtual void* native(std::size_t stream = 0) const = 0;  // for Launch::native_stream
  // Within the device's memory, or between it and a HostBlock or what `host_memory` gave.
  virtual void copy(void* to, const void* from, std::size_t bytes, std::size_t stream = 0) = 0;
  // So many runs of `bytes`, each a stride further on than the one before it.
  struct Runs {
    std::byte* first = nullptr;
    std::size_t stride = 0;
  };
  virtual void copy_runs(const Runs& to, const Runs& from, std::size_t bytes, std::size_t count,
                         std::size_t stream) = 0;
  // Many of them within the device's memory at once; none may touch what another writes.
  virtual void copy_all(std::span<const Copy> copies, std::size_t stream) = 0;
  // A call on the host in the stream's order. It must not throw, nor touch the device.
  virtual void call(void (*function)(void*), void* context, std::size_t stream) = 0;
  // Whether `copy` may read this memory of the host.
  virtual bool reads(const void* memory) const = 0;

  using Set = std::uint32_t;  // bit s: stream s
  static constexpr Set kAll = ~Set{0};
  // From here on the other streams, except those of the set, start after what stream 0 has been given.
  virtual void fork(Set except = 0) = 0;
  // Stream 0 goes on after what the stream has been given. Gives the seconds for which the calling thread waited.
  virtual double join(std::size_t stream) = 0;
  // The calling thread waits for all that the streams, or one of them, have been given.
  virtual void synchronize() = 0;
  virtual void synchronize(std::size_t stream) = 0;
  // Whether all that the streams of the set have been given is done. An error of the device counts as done.
  virtual bool is_idle(Set of = kAll) const = 0;

  // Events are numbered from 0. Each is recorded once between two forks of all streams, before a stream that must go on
  // then waits for it. Waiting gives the seconds for which the calling thread did.
  virtual void record(std::size_t event, std::size_t stream) = 0;
  virtual double wait(std::size_t event, std::size_t stream) = 0;
  // Whether what came before it is done.
  virtual bool is_done(std::size_t event) const = 0;
  // An event as other streams of the same process know it; and waiting for theirs, which have been recorded.
  virtual void* handle(std::size_t event) const = 0;
  virtual void wait_for(void* handle, std::size_t stream) = 0;

  // Times at which a stream came to this point, numbered from 0; and from one to a later one, once both have passed.
  virtual void timestamp(std::size_t number, std::size_t stream = 0) = 0;
  virtual double seconds(std::size_t from, std::size_t to) const = 0;

  // Work that is given while capturing is kept instead of done; `replay` gives all of it to stream 0, as often as it is
  // called. The other streams take part between `fork` and `join`. Captures are numbered from 0. Not on the CPU.
  virtual void begin_capture() = 0;
  virtual std::size_t end_capture() = 0;
  virtual void drop_capture() noexcept = 0;  // ends it after a failure
  virtual void replay(std::size_t capture) = 0;
};

struct StreamShape {
  std::size_t streams = 1;
  std::size_t events = 0;
  std::size_t timestamps = 0;
  std::size_t yielding = 0;                // a stream that the others go before where both have work; 0: none
  std::vector<std::size_t> capacity = {};  // by stream, on the CPU: how much is issued between a fork and its join
};
std::unique_ptr<Streams> make_streams(Kind kind, const StreamShape& shape = {});

}  // namespace trireme::device
