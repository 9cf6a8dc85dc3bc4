#pragma once
#include <trireme/export.h>
#include <trireme/float16.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trireme {

enum class ReduceOp { sum, mean, max, min, prod };

// What a rank has sent and received; docs/communication.md says what each algorithm should.
struct Traffic {
  std::uint64_t steps = 0;
  std::uint64_t messages = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

// Something under way. Its buffers belong to it until wait() returns or test() says true. Dropped before that, it is
// waited for and its error is lost; it must not outlive its communicator.
class TRIREME_API Request {
 public:
  struct Impl;
  explicit Request(std::unique_ptr<Impl> impl);
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  // True once it is done; throws what went wrong.
  bool test();
  void wait();

 private:
  std::unique_ptr<Impl> impl_;
};

// One rank's end of a group of ranks: threads of this process, or processes under mpirun or srun.
//
//   tri::run_ranks(2, [](tri::Communicator& comm) {
//     std::vector<float> a = comm.rank() == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 0, 1};
//     std::vector<float> b = comm.all_reduce(a);                       // {2, 2, 4} on both
//   });
//
// Collectives are called by all ranks in the same order; every rank gets the same bits. A call that waits longer than
// the timeout, or whose partner has failed, throws an Error that says who waited for whom. One thread at a time. The
// `start_` forms return at once; those of collectives run in the order of their issue, overlapped with what the caller
// does meanwhile:
//
//   tri::Request sum = comm.start_all_reduce(std::span(gradients));
//   compute_something_else();
//   sum.wait();
struct RankOptions;
class TRIREME_API Communicator {
 public:
  // This process's end of the group that mpirun or srun has started; a group of one without a launcher. MPI is
  // initialised while it lives, so a process can do that only once. For threads see run_ranks.
  //
  //   tri::Communicator comm = tri::Communicator::create();
  //   std::vector<float> b = comm.all_reduce(a);
  static Communicator create();
  static Communicator create(const RankOptions& options);

  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;
  int size() const;
  // Collective: ranks of equal color form a group, ordered by key, then by rank.
  Communicator split(int color, int key = 0);

  void barrier();
  // Of float, double, Float16, BFloat16, and integers of 8, 16 (unsigned), 32 and 64 bits (signed).
  // `algorithm`: auto, native, sequential, parallel, ring, recursive or tree.
  template <class T>
  void all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum, std::string_view algorithm = "auto") {
    all_reduce_in_place(values.data(), values.size(), element<T>(), op, algorithm);
  }
  template <class T>
  std::vector<T> all_reduce(std::vector<T> values, ReduceOp op = ReduceOp::sum, std::string_view algorithm = "auto") {
    all_reduce(std::span<T>(values), op, algorithm);
    return values;
  }
  // Every rank's values, in the order of the ranks; all bring equally many.
  template <class T>
  std::vector<T> all_gather(const std::vector<T>& mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(size()));
    all_gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  // The sum (or other reduction) of all ranks' `whole`, of which each rank gets its slice, in the order of the ranks;
  // whole.size() == slice.size() × size(). `whole` stays as it is.
  template <class T>
  void reduce_scatter(std::span<T> whole, std::span<T> slice, ReduceOp op = ReduceOp::sum,
                      std::string_view algorithm = "auto") {
    reduce_scatter_of(whole.data(), whole.size(), slice.data(), slice.size(), element<T>(), op, algorithm);
  }
  // The result is the root's `values`; elsewhere they are used up.
  template <class T>
  void reduce(std::span<T> values, int root, ReduceOp op = ReduceOp::sum) {
    reduce_of(values.data(), values.size(), element<T>(), op, root);
  }
  // All ranks name the same root, here as in all that has one: it is not compared.
  template <class T>
  void broadcast(std::span<T> values, int root) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }
  // `all` is size() runs of `mine`'s size and counts on the root only.
  template <class T>
  void scatter(std::span<const T> all, std::span<T> mine, int root) {
    scatter_bytes(std::as_bytes(all), std::as_writable_bytes(mine), root);
  }
  template <class T>
  void gather(std::span<const T> mine, std::span<T> all, int root) {
    gather_bytes(std::as_bytes(mine), std::as_writable_bytes(all), root);
  }
  // Run i of `out` goes to rank i; run i of `in` comes from rank i. They do not overlap.
  template <class T>
  void all_to_all(std::span<const T> out, std::span<T> in) {
    all_to_all_bytes(std::as_bytes(out), std::as_writable_bytes(in));
  }
  // A message is received with the size it was sent with. Tags are from 0 to 32767.
  template <class T>
  void send(std::span<const T> values, int to, int tag = 0) {
    send_bytes(std::as_bytes(values), to, tag);
  }
  template <class T>
  void recv(std::span<T> values, int from, int tag = 0) {
    recv_bytes(std::as_writable_bytes(values), from, tag);
  }

  // What the blocking forms do, begun.
  Request start_barrier();
  template <class T>
  Request start_all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum, std::string_view algorithm = "auto") {
    return start_all_reduce_of(values.data(), values.size(), element<T>(), op, algorithm);
  }
  template <class T>
  Request start_reduce_scatter(std::span<T> whole, std::span<T> slice, ReduceOp op = ReduceOp::sum,
                               std::string_view algorithm = "auto") {
    return start_reduce_scatter_of(whole.data(), whole.size(), slice.data(), slice.size(), element<T>(), op, algorithm);
  }
  template <class T>
  Request start_all_gather(std::span<const T> mine, std::span<T> all, std::string_view algorithm = "auto") {
    return start_all_gather_of(mine.data(), mine.size(), all.data(), all.size(), element<T>(), algorithm);
  }
  template <class T>
  Request start_reduce(std::span<T> values, int root, ReduceOp op = ReduceOp::sum) {
    return start_reduce_of(values.data(), values.size(), element<T>(), op, root);
  }
  template <class T>
  Request start_broadcast(std::span<T> values, int root) {
    return start_broadcast_bytes(std::as_writable_bytes(values), root);
  }
  template <class T>
  Request start_scatter(std::span<const T> all, std::span<T> mine, int root) {
    return start_scatter_bytes(std::as_bytes(all), std::as_writable_bytes(mine), root);
  }
  template <class T>
  Request start_gather(std::span<const T> mine, std::span<T> all, int root) {
    return start_gather_bytes(std::as_bytes(mine), std::as_writable_bytes(all), root);
  }
  template <class T>
  Request start_all_to_all(std::span<const T> out, std::span<T> in) {
    return start_all_to_all_bytes(std::as_bytes(out), std::as_writable_bytes(in));
  }
  template <class T>
  Request start_send(std::span<const T> values, int to, int tag = 0) {
    return start_send_bytes(std::as_bytes(values), to, tag);
  }
  template <class T>
  Request start_recv(std::span<T> values, int from, int tag = 0) {
    return start_recv_bytes(std::as_writable_bytes(values), from, tag);
  }

  Traffic traffic() const;
  // Ends all ranks: their calls throw, with this reason.
  void abort(const std::string& why);

 private:
  friend class ParameterServer;
  enum class Element { f32, f64, f16, bf16, i8, u8, u16, i32, i64 };
  template <class T>
  static constexpr Element element() {
    if constexpr (std::is_same_v<T, float>)
      return Element::f32;
    else if constexpr (std::is_same_v<T, double>)
      return Element::f64;
    else if constexpr (std::is_same_v<T, Float16>)
      return Element::f16;
    else if constexpr (std::is_same_v<T, BFloat16>)
      return Element::bf16;
    else if constexpr (std::is_same_v<T, std::int8_t>)
      return Element::i8;
    else if constexpr (std::is_same_v<T, std::uint8_t>)
      return Element::u8;
    else if constexpr (std::is_same_v<T, std::uint16_t>)
      return Element::u16;
    else if constexpr (std::is_same_v<T, std::int32_t>)
      return Element::i32;
    else {
      static_assert(std::is_same_v<T, std::int64_t>,
                    "float, double, Float16, BFloat16, or int8, uint8, uint16, int32 or int64");
      return Element::i64;
    }
  }
  void all_reduce_in_place(void* data, std::size_t count, Element element, ReduceOp op, std::string_view algorithm);
  void all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);
  void broadcast_bytes(std::span<std::byte> bytes, int root);
  void reduce_scatter_of(void* whole, std::size_t whole_count, void* slice, std::size_t slice_count, Element element,
                         ReduceOp op, std::string_view algorithm);
  void reduce_of(void* data, std::size_t count, Element element, ReduceOp op, int root);
  void scatter_bytes(std::span<const std::byte> all, std::span<std::byte> mine, int root);
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, int root);
  void all_to_all_bytes(std::span<const std::byte> out, std::span<std::byte> in);
  Request start_all_reduce_of(void* data, std::size_t count, Element element, ReduceOp op, std::string_view algorithm);
  Request start_reduce_scatter_of(void* whole, std::size_t whole_count, void* slice, std::size_t slice_count,
                                  Element element, ReduceOp op, std::string_view algorithm);
  Request start_all_gather_of(const void* mine, std::size_t mine_count, void* all, std::size_t all_count,
                              Element element, std::string_view algorithm);
  Request start_reduce_of(void* data, std::size_t count, Element element, ReduceOp op, int root);
  Request start_broadcast_bytes(std::span<std::byte> bytes, int root);
  Request start_scatter_bytes(std::span<const std::byte> all, std::span<std::byte> mine, int root);
  Request start_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, int root);
  Request start_all_to_all_bytes(std::span<const std::byte> out, std::span<std::byte> in);
  Request start_send_bytes(std::span<const std::byte> bytes, int to, int tag);
  Request start_recv_bytes(std::span<std::byte> bytes, int from, int tag);
  void send_bytes(std::span<const std::byte> bytes, int to, int tag);
  void recv_bytes(std::span<std::byte> bytes, int from, int tag);

  std::unique_ptr<Impl> impl_;
};

struct RankOptions {
  // auto: the processes of mpirun or srun if this is one of them, else threads.
  std::string transport = "auto";  // auto | threads | mpi
  std::string link = "";           // threads pretend to a network link: "1GB/s,20us"
  double timeout = 60;             // seconds
};

// Runs `body` on every rank and returns when all of this process's have ended. `ranks` counts threads; under MPI the
// launcher decided, and `body` runs once, on this process's rank. If a rank throws, all others stop waiting and the
// first error is thrown here. MPI is initialised and finalised within the call, so a process can do that only once.
TRIREME_API void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const RankOptions& options = {});

}  // namespace trireme
