#include "trireme/comm/communicator.h"

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

#include "trireme/comm/algorithms/algorithms.h"
#include "trireme/comm/scratch.h"
#include "trireme/core/worker.h"

namespace trireme::comm {
namespace {

// Written by the one thread that uses the channel, read by anybody.
class SharedCounters {
 public:
  void add(const Counters& c) {
    bump(steps_, c.steps);
    bump(messages_, c.messages);
    bump(sent_, c.sent);
    bump(received_, c.received);
  }
  void add_to(Counters& sum) const {
    sum.steps += steps_.load(std::memory_order_relaxed);
    sum.messages += messages_.load(std::memory_order_relaxed);
    sum.sent += sent_.load(std::memory_order_relaxed);
    sum.received += received_.load(std::memory_order_relaxed);
  }

 private:
  static void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

// Grows to what was needed and stays.
class Scratch {
 public:
  std::span<std::byte> get(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kScratchAlignment})));
      size_ = bytes;
    }
    return {memory_.get(), bytes};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kScratchAlignment}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

// A collective on the background channel.
struct Task {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;

  void run() {
    std::exception_ptr thrown;
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    error = std::move(thrown);
    done = true;
    changed.notify_all();
  }
};

class TaskState final : public Request::State {
 public:
  explicit TaskState(std::shared_ptr<Task> task) : task_(std::move(task)) {}
  // The caller takes the error with it, so that the worker's thread does not drop it later.
  bool test() override {
    const std::lock_guard lock(task_->mutex);
    if (task_->done && task_->error) std::rethrow_exception(std::exchange(task_->error, nullptr));
    return task_->done;
  }
  void wait() override {
    std::unique_lock lock(task_->mutex);
    task_->changed.wait(lock, [&] { return task_->done; });
    if (task_->error) std::rethrow_exception(std::exchange(task_->error, nullptr));
  }

 private:
  std::shared_ptr<Task> task_;
};

class MessageState final : public Request::State {
 public:
  MessageState(Transport& transport, Ticket ticket) : transport_(transport), ticket_(std::move(ticket)) {}
  bool test() override { return !ticket_ || transport_.test(ticket_, {}); }
  void wait() override {
    if (ticket_) transport_.wait(ticket_, {});
  }

 private:
  Transport& transport_;
  Ticket ticket_;
};

}  // namespace

struct Communicator::Impl {
  // What one thread needs to run collectives.
  struct Strand {
    explicit Strand(Channel which) : channel(which) {}
    const Channel channel;
    std::uint32_t sequence = 0;
    SharedCounters counters;
    Scratch scratch;
    std::vector<Ticket> tickets;  // of an exchange: kept for their memory
  };

  std::unique_ptr<Transport> transport;
  std::shared_ptr<const Tuning> tuning;
  Strand foreground{Channel::foreground};
  Strand background{Channel::background};
  Strand user{Channel::user};
  Counters zero;                                          // what counters() counts from
  std::unique_ptr<Worker<std::shared_ptr<Task>>> worker;  // last: its thread ends before anything it uses

  // Runs `body` as the next collective of a strand, counting what it did even when it throws.
  template <class Body>
  void collective(Strand& strand, Collective kind, Algorithm algorithm, const Options& options, Body&& body) {
    transport->check();
    Call call{.collective = kind, .algorithm = algorithm};
    call.set_name(options.name);
    const int tag = static_cast<int>(strand.sequence++ % kTags);
    Counters counters;
    try {
      body(call, tag, counters);
    } catch (...) {
      strand.counters.add(counters);
      throw;
    }
    strand.counters.add(counters);
  }

  template <class Body>
  void over_messages(Strand& strand, Collective kind, const Options& options, Body&& body) {
    collective(strand, kind, Algorithm::automatic, options, [&](const Call& call, int tag, Counters& counters) {
      Wire wire(*transport, strand.channel, tag, call, counters);
      body(wire);
    });
  }

  Ticket send(std::span<const std::byte> bytes, int to, int tag) {
    check_rank(to);
    TRI_CHECK(tag >= 0 && tag < kTags, "tag {}", tag);
    Ticket ticket = transport->send(Channel::user, bytes, to, tag);
    user.counters.add({.steps = 1, .messages = 1, .sent = bytes.size(), .received = 0});
    return ticket;
  }
  Ticket recv(std::span<std::byte> bytes, int from, int tag) {
    check_rank(from);
    TRI_CHECK(tag >= 0 && tag < kTags, "tag {}", tag);
    Ticket ticket = transport->recv(Channel::user, bytes, from, tag, nullptr);
    user.counters.add({.steps = 1, .messages = 0, .sent = 0, .received = bytes.size()});
    return ticket;
  }

  std::span<std::byte> scratch(Strand& strand, const Options& options, std::size_t bytes) const {
    if (options.scratch.empty()) return strand.scratch.get(bytes);
    if (options.scratch.size() < bytes)
      fail("collective \"{}\" was given {} bytes of scratch where it needs {}", options.name, options.scratch.size(),
           bytes);
    return options.scratch;
  }

  Algorithm resolve(Algorithm algorithm, Collective kind, std::size_t bytes) const {
    const bool lacks_native = transport->kind() == TransportKind::emulated;
    if (algorithm == Algorithm::automatic)
      algorithm = choose(*tuning, transport->kind(), kind, bytes, transport->size());
    if (algorithm == Algorithm::native && lacks_native)
      algorithm = choose({}, transport->kind(), kind, bytes, transport->size());
    if (kind != Collective::all_reduce && (algorithm == Algorithm::sequential || algorithm == Algorithm::tree))
      algorithm = Algorithm::ring;
    return algorithm;
  }

  void barrier(Strand& strand) {
    if (transport->size() == 1) return transport->check();
    collective(strand, Collective::barrier, Algorithm::automatic, {},
               [&](const Call& call, int tag, Counters& counters) {
                 if (transport->barrier(strand.channel, call, counters)) return;
                 Wire wire(*transport, strand.channel, tag, call, counters);
                 dissemination_barrier(wire);
               });
  }

  void broadcast(Strand& strand, std::span<std::byte> bytes, int root) {
    check_rank(root);
    over_messages(strand, Collective::broadcast, {}, [&](Wire& wire) { tree_broadcast(wire, bytes, root); });
  }

  void check_runs(Collective kind, std::size_t all, std::size_t mine, int root) const {
    check_rank(root);
    TRI_CHECK(transport->rank() != root || all == mine * static_cast<std::size_t>(transport->size()),
              "{} of {} bytes over {} ranks of {}", name_of(kind), all, transport->size(), mine);
  }

  void scatter(Strand& strand, std::span<const std::byte> all, std::span<std::byte> mine, int root) {
    check_runs(Collective::scatter, all.size(), mine.size(), root);
    over_messages(strand, Collective::scatter, {}, [&](Wire& wire) { direct_scatter(wire, all, mine, root); });
  }

  void gather(Strand& strand, std::span<const std::byte> mine, std::span<std::byte> all, int root) {
    check_runs(Collective::gather, all.size(), mine.size(), root);
    over_messages(strand, Collective::gather, {}, [&](Wire& wire) { direct_gather(wire, mine, all, root); });
  }

  void all_to_all(Strand& strand, std::span<const std::byte> out, std::span<std::byte> in) {
    TRI_CHECK(out.size() == in.size() && out.size() % static_cast<std::size_t>(transport->size()) == 0,
              "all_to_all of {} and {} bytes over {} ranks", out.size(), in.size(), transport->size());
    over_messages(strand, Collective::all_to_all, {}, [&](Wire& wire) { pairwise_all_to_all(wire, out, in); });
  }

  void exchange(Strand& strand, std::span<const Swap> swaps, const Options& options) {
    for (const Swap& swap : swaps) check_rank(swap.peer);
    over_messages(strand, Collective::exchange, options, [&](Wire& wire) {
      try {
        direct_exchange(wire, swaps, strand.tickets);
      } catch (...) {
        strand.tickets.clear();  // takes the buffers back
        throw;
      }
    });
  }

  void reduce(Strand& strand, void* data, std::int64_t count, DType dtype, Reduce op, int root,
              const Options& options) {
    check_rank(root);
    over_messages(strand, Collective::reduce, options, [&](Wire& wire) {
      const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
      const std::size_t needed = wire.size() == 1 ? 0 : bytes;
      tree_reduce(wire, {static_cast<std::byte*>(data), count, dtype, op, scratch(strand, options, needed)}, root);
    });
  }

  void all_reduce(Strand& strand, std::span<const Segment> segments, DType dtype, Reduce op, const Options& options) {
    const std::size_t element = size_of(dtype);
    const std::size_t bytes = total_bytes(segments, element);
    if (bytes == 0 || transport->size() == 1) return transport->check();
    const Algorithm algorithm = resolve(options.algorithm, Collective::all_reduce, bytes);
    collective(strand, Collective::all_reduce, algorithm, options, [&](const Call& call, int tag, Counters& counters) {
      if (algorithm == Algorithm::native && transport->kind() == TransportKind::threads &&
          transport->all_reduce(strand.channel, segments, dtype, op, call, counters))
        return;
      std::span<std::byte> room = scratch(
          strand, options, comm::scratch_bytes(transport->kind(), algorithm, segments, dtype, transport->size()));
      Reduction r{static_cast<std::byte*>(segments[0].data), static_cast<std::int64_t>(bytes / element), dtype, op,
                  room};
      if (segments.size() > 1) {
        std::byte* to = r.data = room.data();
        r.scratch = room.subspan(scratch_aligned(bytes));
        for (const Segment& s : segments) to = copy(to, s.data, static_cast<std::size_t>(s.count) * element);
      }
      run(r, algorithm, strand.channel, tag, call, counters);
      if (segments.size() > 1) {
        const std::byte* from = r.data;
        for (const Segment& s : segments) {
          copy(static_cast<std::byte*>(s.data), from, static_cast<std::size_t>(s.count) * element);
          from += static_cast<std::size_t>(s.count) * element;
        }
      }
    });
  }

  void run(const Reduction& r, Algorithm algorithm, Channel channel, int tag, const Call& call, Counters& counters) {
    Wire wire(*transport, channel, tag, call, counters);
    switch (algorithm) {
      case Algorithm::sequential: return sequential_all_reduce(wire, r);
      case Algorithm::parallel: return parallel_all_reduce(wire, r);
      case Algorithm::ring: return ring_all_reduce(wire, r);
      case Algorithm::recursive: return recursive_all_reduce(wire, r);
      case Algorithm::tree: return tree_all_reduce(wire, r);
      case Algorithm::automatic:
      case Algorithm::native: break;
    }
    const Segment packed{r.data, r.count};
    if (!transport->all_reduce(channel, std::span(&packed, 1), r.dtype, r.reduce, call, counters))
      fail("the {} transport has no all-reduce of its own", name_of(transport->kind()));
  }

  void reduce_scatter(Strand& strand, std::span<const Cut> cuts, DType dtype, Reduce op, const Options& options) {
    const std::size_t bytes = total_bytes(cuts, size_of(dtype));
    slicing(strand, Collective::reduce_scatter, bytes, cuts, dtype, op, options,
            [&](Wire& wire, const Slicing& s, Algorithm algorithm, const Call& call, Counters& counters) {
              if (algorithm == Algorithm::parallel) return parallel_reduce_scatter(wire, s);
              if (algorithm == Algorithm::recursive) return recursive_reduce_scatter(wire, s);
              if (algorithm == Algorithm::native &&
                  transport->reduce_scatter(strand.channel, cuts, dtype, op, s.scratch, call, counters))
                return;
              ring_reduce_scatter(wire, s);
            });
  }

  void all_gather(Strand& strand, std::span<const Cut> cuts, DType dtype, const Options& options) {
    const std::size_t bytes = total_bytes(cuts, size_of(dtype));
    slicing(strand, Collective::all_gather, bytes, cuts, dtype, Reduce::sum, options,
            [&](Wire& wire, const Slicing& s, Algorithm algorithm, const Call& call, Counters& counters) {
              if (algorithm == Algorithm::parallel) return parallel_all_gather(wire, s);
              if (algorithm == Algorithm::recursive) return recursive_all_gather(wire, s);
              if (algorithm == Algorithm::native &&
                  transport->all_gather(strand.channel, cuts, dtype, s.scratch, call, counters))
                return;
              ring_all_gather(wire, s);
            });
  }

  template <class Body>
  void slicing(Strand& strand, Collective kind, std::size_t bytes, std::span<const Cut> cuts, DType dtype, Reduce op,
               const Options& options, Body&& body) {
    const int n = transport->size();
    const std::size_t element = size_of(dtype);
    for (const Cut& cut : cuts)
      TRI_CHECK(cut.slice_count * n >= cut.count, "{} elements do not fit {} slices of {}", cut.count, n,
                cut.slice_count);
    if (bytes == 0 || n == 1) {
      transport->check();
      if (kind == Collective::all_gather) return place_slices(cuts, 0, element);
      for (const Cut& cut : cuts)
        if (cut.count > 0 && cut.slice != cut.whole)
          std::memcpy(cut.slice, cut.whole, static_cast<std::size_t>(cut.count) * element);
      return pad_slices(cuts, transport->rank(), element);
    }
    const Algorithm algorithm = resolve(options.algorithm, kind, bytes);
    collective(strand, kind, algorithm, options, [&](const Call& call, int tag, Counters& counters) {
      const std::size_t needed = comm::scratch_bytes(transport->kind(), kind, algorithm, cuts, dtype, n);
      Wire wire(*transport, strand.channel, tag, call, counters);
      body(wire, Slicing{cuts, dtype, op, scratch(strand, options, needed)}, algorithm, call, counters);
    });
  }

  static std::byte* copy(std::byte* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return to + bytes;
  }

  void check_rank(int rank) const {
    TRI_CHECK(rank >= 0 && rank < transport->size(), "rank {} of {}", rank, transport->size());
  }

  Request start(std::function<void()> work) {
    transport->check();
    if (!worker)
      worker = std::make_unique<Worker<std::shared_ptr<Task>>>(
          256, [](std::shared_ptr<Task>& task) { task->run(); }, Waking::soon);
    auto task = std::make_shared<Task>();
    task->work = std::move(work);
    worker->submit(task);
    return Request(std::make_unique<TaskState>(std::move(task)));
  }
};

Communicator::Communicator(std::unique_ptr<Transport> transport, std::shared_ptr<const Tuning> tuning)
    : impl_(std::make_unique<Impl>()) {
  impl_->transport = std::move(transport);
  impl_->tuning = tuning ? std::move(tuning) : std::make_shared<const Tuning>();
}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->transport->rank(); }
int Communicator::size() const { return impl_->transport->size(); }
TransportKind Communicator::transport() const { return impl_->transport->kind(); }

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  std::unique_ptr<Transport> part = impl_->transport->split(color, key);
  return part ? std::make_unique<Communicator>(std::move(part), impl_->tuning) : nullptr;
}

void Communicator::send(std::span<const std::byte> bytes, int to, int tag) {
  MessageState(*impl_->transport, impl_->send(bytes, to, tag)).wait();
}
void Communicator::recv(std::span<std::byte> bytes, int from, int tag) {
  MessageState(*impl_->transport, impl_->recv(bytes, from, tag)).wait();
}

Request Communicator::start_send(std::span<const std::byte> bytes, int to, int tag) {
  return Request(std::make_unique<MessageState>(*impl_->transport, impl_->send(bytes, to, tag)));
}
Request Communicator::start_recv(std::span<std::byte> bytes, int from, int tag) {
  return Request(std::make_unique<MessageState>(*impl_->transport, impl_->recv(bytes, from, tag)));
}

void Communicator::barrier() { impl_->barrier(impl_->foreground); }
void Communicator::broadcast(std::span<std::byte> bytes, int root) { impl_->broadcast(impl_->foreground, bytes, root); }
void Communicator::scatter(std::span<const std::byte> all, std::span<std::byte> mine, int root) {
  impl_->scatter(impl_->foreground, all, mine, root);
}
void Communicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root) {
  impl_->gather(impl_->foreground, mine, all, root);
}
void Communicator::all_to_all(std::span<const std::byte> out, std::span<std::byte> in) {
  impl_->all_to_all(impl_->foreground, out, in);
}
void Communicator::exchange(std::span<const Swap> swaps, const Options& options) {
  impl_->exchange(impl_->foreground, swaps, options);
}
void Communicator::reduce(void* data, std::int64_t count, DType dtype, Reduce reduce, int root,
                          const Options& options) {
  impl_->reduce(impl_->foreground, data, count, dtype, reduce, root, options);
}
void Communicator::all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options) {
  impl_->all_reduce(impl_->foreground, segments, dtype, reduce, options);
}
void Communicator::reduce_scatter(std::span<const Cut> cuts, DType dtype, Reduce reduce, const Options& options) {
  impl_->reduce_scatter(impl_->foreground, cuts, dtype, reduce, options);
}
void Communicator::all_gather(std::span<const Cut> cuts, DType dtype, const Options& options) {
  impl_->all_gather(impl_->foreground, cuts, dtype, options);
}

namespace {

// Options whose name outlives the call.
struct KeptOptions {
  explicit KeptOptions(const Options& options) : options_(options), name_(options.name) {}
  Options get() const { return {options_.algorithm, options_.scratch, name_}; }

 private:
  Options options_;
  std::string name_;
};

}  // namespace

Request Communicator::start_barrier() {
  return impl_->start([impl = impl_.get()] { impl->barrier(impl->background); });
}
Request Communicator::start_broadcast(std::span<std::byte> bytes, int root) {
  return impl_->start([impl = impl_.get(), bytes, root] { impl->broadcast(impl->background, bytes, root); });
}
Request Communicator::start_scatter(std::span<const std::byte> all, std::span<std::byte> mine, int root) {
  return impl_->start([impl = impl_.get(), all, mine, root] { impl->scatter(impl->background, all, mine, root); });
}
Request Communicator::start_gather(std::span<const std::byte> mine, std::span<std::byte> all, int root) {
  return impl_->start([impl = impl_.get(), mine, all, root] { impl->gather(impl->background, mine, all, root); });
}
Request Communicator::start_all_to_all(std::span<const std::byte> out, std::span<std::byte> in) {
  return impl_->start([impl = impl_.get(), out, in] { impl->all_to_all(impl->background, out, in); });
}
Request Communicator::start_reduce(void* data, std::int64_t count, DType dtype, Reduce reduce, int root,
                                   const Options& options) {
  return impl_->start([=, impl = impl_.get(), kept = KeptOptions(options)] {
    impl->reduce(impl->background, data, count, dtype, reduce, root, kept.get());
  });
}
Request Communicator::start_all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce,
                                       const Options& options) {
  return impl_->start(
      [impl = impl_.get(), list = std::vector(segments.begin(), segments.end()), dtype, reduce,
       kept = KeptOptions(options)] { impl->all_reduce(impl->background, list, dtype, reduce, kept.get()); });
}
Request Communicator::start_reduce_scatter(std::span<const Cut> cuts, DType dtype, Reduce reduce,
                                           const Options& options) {
  return impl_->start(
      [impl = impl_.get(), list = std::vector(cuts.begin(), cuts.end()), dtype, reduce, kept = KeptOptions(options)] {
        impl->reduce_scatter(impl->background, list, dtype, reduce, kept.get());
      });
}
Request Communicator::start_all_gather(std::span<const Cut> cuts, DType dtype, const Options& options) {
  return impl_->start([impl = impl_.get(), list = std::vector(cuts.begin(), cuts.end()), dtype,
                       kept = KeptOptions(options)] { impl->all_gather(impl->background, list, dtype, kept.get()); });
}

Algorithm Communicator::resolve(Algorithm algorithm, Collective collective, std::size_t bytes) const {
  return impl_->resolve(algorithm, collective, bytes);
}
std::size_t Communicator::scratch_bytes(Algorithm algorithm, std::span<const Segment> segments, DType dtype) const {
  const std::size_t bytes = total_bytes(segments, size_of(dtype));
  return comm::scratch_bytes(transport(), resolve(algorithm, Collective::all_reduce, bytes), segments, dtype, size());
}
std::size_t Communicator::scratch_bytes(Collective collective, Algorithm algorithm, std::span<const Cut> cuts,
                                        DType dtype) const {
  const std::size_t bytes = total_bytes(cuts, size_of(dtype));
  return comm::scratch_bytes(transport(), collective, resolve(algorithm, collective, bytes), cuts, dtype, size());
}

Counters Communicator::counters() const {
  Counters sum;
  impl_->foreground.counters.add_to(sum);
  impl_->background.counters.add_to(sum);
  impl_->user.counters.add_to(sum);
  sum.steps -= impl_->zero.steps;
  sum.messages -= impl_->zero.messages;
  sum.sent -= impl_->zero.sent;
  sum.received -= impl_->zero.received;
  return sum;
}
void Communicator::reset_counters() {
  const Counters now = counters();
  impl_->zero.steps += now.steps;
  impl_->zero.messages += now.messages;
  impl_->zero.sent += now.sent;
  impl_->zero.received += now.received;
}

void Communicator::abort(const std::string& why) { impl_->transport->abort(why); }
void Communicator::check() const { impl_->transport->check(); }

Cut Communicator::even_cut(void* whole, void* slice, std::size_t whole_count, std::size_t slice_count) const {
  TRI_CHECK(whole_count == slice_count * static_cast<std::size_t>(size()), "{} elements in {} slices of {}",
            whole_count, size(), slice_count);
  return {whole, slice, static_cast<std::int64_t>(whole_count), static_cast<std::int64_t>(slice_count)};
}

}  // namespace trireme::comm
