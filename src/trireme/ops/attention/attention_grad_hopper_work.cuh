#pragma once
#include <cuda.h>

#include <cstdint>

// What a block of threads of attention's gradient on Hopper has to do, and in which order.
//
// Blocks of keys are taken in one of two orders. Short first: a head's from the last to the first, each beginning with
// its own queries: with a causal mask block j reaches queries i one block later than block j + 1, which adds to them
// before it, and none waits. Long first: of several heads at once, from the first, which most queries see, to the last,
// so that little is left for the end; all begin with the last queries, which see them all, and so read the same queries
// at the same time. Heads of up to 64 are faster in the first order, but for the last few; wider ones in the second.
// With documents a block of keys is done with the last query that sees any of them, and dQ of a block of queries is a
// sum over the blocks of keys from the one in which its first document begins.
namespace trireme::ops::cuda::attention_grad {

// What depends on the width of a head. A warpgroup holds dK and dV of 64 keys, and S and dP of these and the queries:
// wide heads leave room for fewer queries. And whether queries see their own document alone.
template <int Dim, bool Documents = false>
struct Extents {
  static constexpr bool kDocuments = Documents;
  static constexpr int kDim = Dim;
  static constexpr int kTiles = Dim / 64;      // of 64 columns
  static constexpr int kQueries = 8192 / Dim;  // in a block
  static constexpr int kQueryBytes = kQueries * Dim * 2;
  static constexpr int kKeyBytes = 128 * Dim * 2;
  static constexpr int kScoreTiles = kQueries / 64;
  static constexpr int kValueStages = Dim == 64 ? 2 : 1;
  static constexpr int kSlots = Dim == 64 ? 2 : 3;  // for dQ of a warpgroup on its way out, and warps that write it
  // Whether dK and dV leave through memory of their own; else through that of the keys, and a slot for dQ.
  static constexpr bool kRoom = Dim == 64;
  static constexpr bool kAllLongFirst = Dim == 128;
  static constexpr int kTogether = Dim == 64 ? 512 : 256;  // blocks of keys that are taken long first at once, about
};

constexpr int kKeys = 128;      // in a block
constexpr int kSums = 64 * 64;  // floats of dQ of one warpgroup
constexpr int kThreads = 3 * 128;

struct Work {
  CUtensorMap q, k, v, d, dq, dk, dv;
  const float *lse, *delta;  // of each row of each head, in whole blocks: log2 Σ exp, and Σ dO·O·scale
  float* sums;               // of dQ, in the order of the threads' registers
  int* turn;                 // of each half of a block of queries: blocks of keys added
  int* ticket;
  const int* starts;      // with documents: [batch, rows], the first key that a query sees
  const int* last_query;  // [batch, key_blocks]: the last block of queries that sees a block of keys
  int rows, heads, key_heads, group, causal;
  int key_blocks, query_blocks;
  int tiles;        // blocks of keys of all heads of all rows of the batch
  int short_first;  // so many of them
  int together;     // of the others: heads whose blocks are taken at once
  float scale, scale_log2;
};

// A block of keys, and one after the other the blocks of queries that see it, of every head.
template <class X>
struct Steps {
  static constexpr int kPerKeys = kKeys / X::kQueries;  // blocks of queries as long as one of keys
  int batch, key_head, block;
  int head, query;
  int end, by;  // the last block of queries; on to the next
  // With documents: the first block of keys that these queries see, and where the last one's document begins. They are
  // read long before they are needed.
  int first_key = 0, latest_start = 0;
  __device__ Steps(const Work& w, int t) {
    int pair = t / w.key_blocks;
    block = w.key_blocks - 1 - t % w.key_blocks;
    by = 1;
    if (t >= w.short_first) {
      const int some = w.together * w.key_blocks, u = (t - w.short_first) % some;
      const int first = (t - u) / w.key_blocks, count = min(w.together, w.tiles / w.key_blocks - first);
      pair = first + u % count;
      block = u / count;
      by = -1;
    }
    batch = pair / w.key_heads;
    key_head = pair % w.key_heads;
    head = key_head * w.group;
    const int first = w.causal ? block * kPerKeys : 0;
    const int last = X::kDocuments ? w.last_query[batch * w.key_blocks + block] : w.query_blocks - 1;
    query = by > 0 ? first : last;
    end = by > 0 ? last : first;
    look(w);
  }
  __device__ bool last(const Work& w) const { return query == end && head == (key_head + 1) * w.group - 1; }
  __device__ void next(const Work& w) {
    if (++head == (key_head + 1) * w.group) {
      head = key_head * w.group;
      query += by;
      look(w);
    }
  }
  // How many blocks of keys add to dQ of these queries before this one; and whether this is the last.
  __device__ int before(const Work& w) const { return by < 0 ? block - first_key : last_key(w) - block; }
  __device__ bool completes(const Work& w) const { return before(w) == last_key(w) - first_key; }
  // Among the blocks of queries of all heads.
  __device__ std::int64_t index(const Work& w) const {
    return static_cast<std::int64_t>(batch * w.heads + head) * w.query_blocks + query;
  }

 private:
  __device__ void look(const Work& w) {
    if constexpr (X::kDocuments) {
      const int* const starts = w.starts + static_cast<std::int64_t>(batch) * w.rows;
      const int row = query * X::kQueries;
      if (row >= w.rows) return;  // past the last step
      first_key = starts[row] / kKeys;
      latest_start = starts[min(row + X::kQueries, w.rows) - 1];
    }
  }
  __device__ int last_key(const Work& w) const { return w.causal ? query / kPerKeys : w.key_blocks - 1; }
};

}  // namespace trireme::ops::cuda::attention_grad
