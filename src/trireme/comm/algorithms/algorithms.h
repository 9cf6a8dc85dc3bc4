#pragma once
#include <span>
#include <vector>

#include "trireme/comm/cuts.h"
#include "trireme/comm/wire.h"

// The collectives over messages, one file per algorithm. N = ranks, S = bytes. All ranks end with the same bits.
//
// All-reduce, per rank        steps                    bytes sent                      scratch
//   sequential                root 2(N−1), others 2    root (N−1)S, others S           S
//   parallel                  1                        (N−1)S                          2S
//   ring                      2(N−1)                   2S(N−1)/N                       S/N
//   recursive, N = 2^k        2k                       2S(N−1)/N                       S/2
//   recursive, folded to P    2·log2 P + 2             2S(P−1)/P, + S for partners;    S
//                                                      S for folded ranks, in 2 steps
//   tree                      2⌈log2 N⌉ at the root    2(N−1)S over all ranks          S
//
// Reduce-scatter and all-gather are half of an all-reduce: ring N−1 steps, recursive log2 N (+ 1 or 2), parallel 1;
// S(N−1)/N bytes per rank when N does not fold.
namespace trireme::comm {

// A tensor that is reduced in place. `scratch` is as large as scratch_bytes() says.
struct Reduction {
  std::byte* data;
  std::int64_t count;
  DType dtype;
  Reduce reduce;
  std::span<std::byte> scratch;

  std::size_t element() const { return size_of(dtype); }
  std::size_t bytes() const { return static_cast<std::size_t>(count) * element(); }
  Combine combine() const { return {dtype, reduce}; }
  // Chunk i of n: nearly equal parts of whole elements.
  std::size_t chunk_begin(int i, int n) const { return static_cast<std::size_t>(count * i / n) * element(); }
  std::span<std::byte> chunks(int begin, int end, int n) const {
    return {data + chunk_begin(begin, n), chunk_begin(end, n) - chunk_begin(begin, n)};
  }
  std::span<std::byte> chunk(int i, int n) const { return chunks(i, i + 1, n); }
  std::span<std::byte> all() const { return {data, bytes()}; }
  void finish(std::span<std::byte> part, int ranks) const {
    comm::finish(part.data(), static_cast<std::int64_t>(part.size() / element()), dtype, reduce, ranks);
  }
};

void sequential_all_reduce(Wire& wire, const Reduction& r);
void parallel_all_reduce(Wire& wire, const Reduction& r);
void ring_all_reduce(Wire& wire, const Reduction& r);
void recursive_all_reduce(Wire& wire, const Reduction& r);
void tree_all_reduce(Wire& wire, const Reduction& r);

// A list of cuts on its way between wholes and slices.
struct Slicing {
  std::span<const Cut> cuts;
  DType dtype;
  Reduce reduce = Reduce::sum;
  std::span<std::byte> scratch;

  std::size_t element() const { return size_of(dtype); }
  std::size_t bytes(int rank) const { return bytes_of(cuts, rank, element()); }
  std::size_t largest(int ranks) const {
    std::size_t most = 0;
    for (int r = 0; r < ranks; ++r) most = std::max(most, bytes(r));
    return most;
  }
};

void ring_reduce_scatter(Wire& wire, const Slicing& s);
void ring_all_gather(Wire& wire, const Slicing& s);
void recursive_reduce_scatter(Wire& wire, const Slicing& s);
void recursive_all_gather(Wire& wire, const Slicing& s);
void parallel_reduce_scatter(Wire& wire, const Slicing& s);
void parallel_all_gather(Wire& wire, const Slicing& s);

// A binomial tree whose root is `root`: the reduction ends there, the broadcast starts there.
void tree_reduce(Wire& wire, const Reduction& r, int root);
void tree_broadcast(Wire& wire, std::span<std::byte> bytes, int root);

// Rank r's run of `bytes` travels straight to or from the root.
void direct_gather(Wire& wire, std::span<const std::byte> mine, std::span<std::byte> all, int root);
void direct_scatter(Wire& wire, std::span<const std::byte> all, std::span<std::byte> mine, int root);
// Run i of `out` goes to rank i, whose run for this rank lands at i of `in`; one partner per step.
void pairwise_all_to_all(Wire& wire, std::span<const std::byte> out, std::span<std::byte> in);
// All messages in one step. `tickets` is empty before and after.
void direct_exchange(Wire& wire, std::span<const Swap> swaps, std::vector<Ticket>& tickets);
// Nobody leaves before all have come: ⌈log2 N⌉ steps of empty messages.
void dissemination_barrier(Wire& wire);

}  // namespace trireme::comm
