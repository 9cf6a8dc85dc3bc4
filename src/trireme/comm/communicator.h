#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "trireme/comm/request.h"
#include "trireme/comm/transport.h"
#include "trireme/comm/tuning.h"
#include "trireme/comm/types.h"
#include "trireme/core/dtype.h"

namespace trireme::comm {

// Messages are distinguished by tags from 0 to kTags - 1.
inline constexpr int kTags = 1 << 15;

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, Float16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DType::i8;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return DType::u16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else {
    static_assert(std::is_same_v<T, std::int64_t>, "no dtype stores this type");
    return DType::i64;
  }
}

// One rank's end of a group of ranks, over whatever transport (threads/world.h, mpi/session.h).
//
//   comm::threads::World world(4);                      // each thread: its own
//   comm::Communicator comm = world.communicator(rank);
//   comm.all_reduce(std::span(gradients), comm::Reduce::sum);
//
// Calls of one communicator come from one thread at a time, collectives in the same order on all ranks. Every rank ends
// with the same bits. All name the same root, which is not compared. The `start_` forms return at once; those of
// collectives run in the order of their issue on a thread made when the first is issued, concurrently with blocking
// calls; the two have no common order.
//
// Blocking calls allocate nothing when they are given scratch, or once they have been called with the same sizes.
// Every call throws: Aborted when some rank has given up, Error when it has waited longer than the world's timeout.
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Transport> transport, std::shared_ptr<const Tuning> tuning = nullptr);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;
  int size() const;
  TransportKind transport() const;

  // Collective: ranks of equal color form a group, ordered by key, then by rank. With a negative color: null.
  std::unique_ptr<Communicator> split(int color, int key = 0);

  // Point to point. Messages between two ranks with equal tags (0 … 32767) arrive in order, and must be received with
  // the size they have. send() may wait until the message is received.
  void send(std::span<const std::byte> bytes, int to, int tag = 0);
  void recv(std::span<std::byte> bytes, int from, int tag = 0);
  Request start_send(std::span<const std::byte> bytes, int to, int tag = 0);
  Request start_recv(std::span<std::byte> bytes, int from, int tag = 0);

  void barrier();
  void broadcast(std::span<std::byte> bytes, int root);
  // `all` is size() runs of `mine`'s size, on the root only. `mine` may be the root's own run.
  void scatter(std::span<const std::byte> all, std::span<std::byte> mine, int root);
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root);
  // Run i of `out` goes to rank i; run i of `in` comes from rank i. They do not overlap.
  void all_to_all(std::span<const std::byte> out, std::span<std::byte> in);
  // With several others at once, which need not be all: every rank of the group calls it.
  void exchange(std::span<const Swap> swaps, const Options& options = {});
  // The result is the root's `data`; elsewhere `data` is used up.
  void reduce(void* data, std::int64_t count, DType dtype, Reduce reduce, int root, const Options& options = {});

  // In place; several tensors are one collective.
  void all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options = {});
  // From `whole` (left as it is, but for the slice inside it) to `slice`.
  void reduce_scatter(std::span<const Cut> cuts, DType dtype, Reduce reduce, const Options& options = {});
  // From `slice` to `whole`.
  void all_gather(std::span<const Cut> cuts, DType dtype, const Options& options = {});

  // One tensor.
  void all_reduce(void* data, std::int64_t count, DType dtype, Reduce reduce, const Options& options = {}) {
    const Segment segment{data, count};
    all_reduce(std::span(&segment, 1), dtype, reduce, options);
  }
  template <class T>
  void all_reduce(std::span<T> values, Reduce reduce, const Options& options = {}) {
    all_reduce(values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>(), reduce, options);
  }
  // whole.size() == slice.size() × size().
  template <class T>
  void reduce_scatter(std::span<T> whole, std::span<T> slice, Reduce reduce, const Options& options = {}) {
    const Cut cut = even_cut(whole.data(), slice.data(), whole.size(), slice.size());
    reduce_scatter(std::span(&cut, 1), dtype_of<T>(), reduce, options);
  }
  template <class T>
  void all_gather(std::span<const T> slice, std::span<T> whole, const Options& options = {}) {
    const Cut cut = even_cut(whole.data(), const_cast<T*>(slice.data()), whole.size(), slice.size());
    all_gather(std::span(&cut, 1), dtype_of<T>(), options);
  }

  // The lists are copied, what they point at is not.
  Request start_barrier();
  Request start_broadcast(std::span<std::byte> bytes, int root);
  Request start_scatter(std::span<const std::byte> all, std::span<std::byte> mine, int root);
  Request start_gather(std::span<const std::byte> mine, std::span<std::byte> all, int root);
  Request start_all_to_all(std::span<const std::byte> out, std::span<std::byte> in);
  Request start_reduce(void* data, std::int64_t count, DType dtype, Reduce reduce, int root,
                       const Options& options = {});
  Request start_all_reduce(std::span<const Segment> segments, DType dtype, Reduce reduce, const Options& options = {});
  Request start_reduce_scatter(std::span<const Cut> cuts, DType dtype, Reduce reduce, const Options& options = {});
  Request start_all_gather(std::span<const Cut> cuts, DType dtype, const Options& options = {});

  // What `automatic` (or a native that the transport lacks) means here.
  Algorithm resolve(Algorithm algorithm, Collective collective, std::size_t bytes) const;
  // What a call with these arguments needs; see scratch.h for plans without a communicator.
  std::size_t scratch_bytes(Algorithm algorithm, std::span<const Segment> segments, DType dtype) const;
  std::size_t scratch_bytes(Collective collective, Algorithm algorithm, std::span<const Cut> cuts, DType dtype) const;

  Counters counters() const;
  void reset_counters();

  // Ends the whole world, with all groups split from it: every blocked or later call of every rank throws Aborted with
  // the first reason. May be called from any thread.
  void abort(const std::string& why);
  // Throws if that has happened. It does not block.
  void check() const;

 private:
  struct Impl;
  friend struct Impl;
  Cut even_cut(void* whole, void* slice, std::size_t whole_count, std::size_t slice_count) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::comm
