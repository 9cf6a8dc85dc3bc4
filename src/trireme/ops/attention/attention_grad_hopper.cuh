#pragma once
#include "trireme/ops/attention/attention_grad_hopper_work.cuh"
#include "trireme/ops/attention/attention_hopper_boxes.cuh"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/hopper.cuh"

// The kernel of attention's gradient on Hopper. A block of threads takes a block of 128 keys of one head and passes by
// the blocks of queries that see it, those of all heads that share the keys. With S = QKᵀ, P = exp(S·scale − lse) and
// dP = dO·Vᵀ it computes, keys down and queries across,
//   dV += Pᵀ·dO,   dSᵀ = Pᵀ∘(dPᵀ − delta)·scale,   dK += dSᵀ·Q,   and   dQ += dS·K.
// dK and dV stay in registers. dQ is a sum over blocks of keys, that is over blocks of threads: it is kept in memory as
// f32 and added to in a fixed order, each block waiting for its turn; the last one writes the result. A block waits
// only for such as got their work before it, so that what is waited for always runs.
//
// Two warpgroups compute, each for half of the keys and, for dQ, half of the queries or of the columns. Of a third one
// warp fetches what they need, the others write dQ.
//
// Rows and columns past the last are fetched as zeros. The lse of such rows is infinite, so they add nothing.
namespace trireme::ops::cuda::attention_grad {

using namespace attention_boxes;

template <class X>
struct Shared {
  unsigned char k[2][X::kKeyBytes], v[X::kValueStages][X::kKeyBytes];
  unsigned char q[2][X::kQueryBytes], d[2][X::kQueryBytes];
  unsigned char ds[X::kScoreTiles][kKeys * 128];  // keys down, queries across
  unsigned char dq[X::kSlots][kSums * 4];
  unsigned char out[X::kRoom ? 2 : 1][X::kRoom ? 2 * kBox : 1024];  // by warpgroup: dK and dV
  float lse[2][X::kQueries], delta[2][X::kQueries];
  hopper::Barrier keys_full[2], keys_empty[2], values_full[X::kValueStages], values_empty[X::kValueStages];
  hopper::Barrier queries_full[2], queries_empty[2];
  hopper::Barrier slot_full[X::kSlots], slot_empty[X::kSlots];
  int tile[2];
};

// Barriers of the block.
constexpr int kScores = 1;      // dS is there
constexpr int kScoresFree = 2;  // + warpgroup: the other one has read dS and the keys
constexpr int kOwn = 4;         // + warpgroup

// By one thread.
template <class X>
__device__ void fetch_all(const Work& w, Shared<X>& s) {
  hopper::Stage<2> keys, queries;
  hopper::Stage<X::kValueStages> values;
  const auto fetch_values = [&](const Steps<X>& step) {
    hopper::wait(s.values_empty[values.at], values.phase ^ 1);
    hopper::Barrier& full = s.values_full[values.at];
    fetch_tile<X, kKeys>(s.v[values.at], w.v, step.key_head, step.block * kKeys, step.batch, full);
    hopper::arrive_with(full, X::kKeyBytes);
    values.next();
  };
  for (;; keys.next()) {
    hopper::wait(s.keys_empty[keys.at], keys.phase ^ 1);
    const int t = atomicAdd(w.ticket, 1);
    s.tile[keys.at] = t < w.tiles ? t : -1;
    if (t >= w.tiles) break;
    Steps<X> step(w, t);
    hopper::Barrier& full = s.keys_full[keys.at];
    fetch_tile<X, kKeys>(s.k[keys.at], w.k, step.key_head, step.block * kKeys, step.batch, full);
    hopper::arrive_with(full, X::kKeyBytes);
    if (X::kValueStages > 1) fetch_values(step);
    for (bool first = true, last = false; !last; step.next(w), first = false) {
      last = step.last(w);
      hopper::wait(s.queries_empty[queries.at], queries.phase ^ 1);
      hopper::Barrier& there = s.queries_full[queries.at];
      fetch_tile<X, X::kQueries>(s.q[queries.at], w.q, step.head, step.query * X::kQueries, step.batch, there);
      fetch_tile<X, X::kQueries>(s.d[queries.at], w.d, step.head, step.query * X::kQueries, step.batch, there);
      const std::int64_t row = step.index(w) * X::kQueries;
      hopper::fetch_bytes(s.lse[queries.at], w.lse + row, X::kQueries * 4, there);
      hopper::fetch_bytes(s.delta[queries.at], w.delta + row, X::kQueries * 4, there);
      hopper::arrive_with(there, 2 * X::kQueryBytes + 2 * X::kQueries * 4);
      queries.next();
      // Where there is one stage of values it is free later than that of the first queries, and needed later.
      if (X::kValueStages == 1 && first) fetch_values(step);
    }
  }
  hopper::arrive(s.keys_full[keys.at]);
}

// dQ of one warpgroup, by one thread.
template <class X>
__device__ __forceinline__ void store_query(const Work& w, const unsigned char* dq, const Steps<X>& step, int group) {
  if (step.completes(w)) {
    const int column = X::kTiles == 2 ? group * 64 : 0, row = X::kTiles == 2 ? 0 : group * kHalf;
    hopper::store_box(w.dq, column, step.head, step.query * X::kQueries + row, step.batch, dq);
  } else {
    float* const to = w.sums + (step.index(w) * 2 + group) * kSums;
    if (step.before(w) == 0)
      hopper::store_bytes(to, dq, kSums * 4);
    else
      hopper::add_floats(to, dq, kSums * 4);
  }
  hopper::close_stores();
  hopper::wait_stores_read();
}

// By the warp of one slot.
template <class X>
__device__ void store_queries(const Work& w, Shared<X>& s, int slot) {
  const bool first = threadIdx.x % 32 == 0;
  int turn = 0, phase = 0;  // the slot whose turn it is; of this one's barriers
  for (hopper::Stage<2> keys;; keys.next()) {
    hopper::wait(s.keys_full[keys.at], keys.phase);
    const int t = s.tile[keys.at];
    hopper::arrive(s.keys_empty[keys.at]);
    if (t < 0) return;
    Steps<X> step(w, t);
    for (bool last = false; !last; step.next(w)) {
      last = step.last(w);
      for (int group = 0; group < 2; ++group, turn = turn + 1 == X::kSlots ? 0 : turn + 1) {
        if (turn != slot) continue;
        int* const added = w.turn + step.index(w) * 2 + group;
        const bool completes = step.completes(w);
        if (first && !completes) {
          while (hopper::read_acquire(added) != step.before(w)) {
          }
          hopper::fence_global();
        }
        hopper::wait(s.slot_full[slot], phase);
        if (first) store_query(w, s.dq[slot], step, group);
        __syncwarp();
        hopper::arrive(s.slot_empty[slot]);
        phase ^= 1;
        if (first && !completes) {
          hopper::wait_stores();
          hopper::add_release(added, 1);
        }
        __syncwarp();
      }
    }
  }
}

// Keys (or values) of one warpgroup times queries (or dO).
template <class X, class T>
__device__ __forceinline__ void begin_scores(float (&c)[X::kQueries / 2], const unsigned char* keys, int group,
                                             const unsigned char* queries) {
  const std::uint64_t a = hopper::tile(keys + group * kBox), b = hopper::tile(queries);
  hopper::products_begin();
#pragma unroll
  for (int n = 0; n < X::kDim / 16; ++n)
    hopper::multiply_along<T>(c, a + n % 4 * hopper::kAlong + n / 4 * (kKeys * 128 >> 4),
                              b + n % 4 * hopper::kAlong + n / 4 * (X::kQueries * 128 >> 4), n);
  hopper::products_end();
}

// Adds to dV or dK: scores times dO or queries.
template <class X, class T>
__device__ __forceinline__ void begin_sum(float (&c)[X::kDim / 2], const std::uint32_t (&a)[X::kQueries / 4],
                                          const unsigned char* queries, bool first) {
  const std::uint64_t b = hopper::wide_tile(queries, X::kQueries * 128);
  hopper::products_begin();
#pragma unroll
  for (int n = 0; n < X::kQueries / 16; ++n)
    hopper::multiply_held<T>(c, a + 4 * n, b + n * hopper::kAcross, n == 0 && first ? 0 : 1);
  hopper::products_end();
}

// Scores of keys that a query does not see; `row` and `column` are those of the first.
template <class X>
__device__ __forceinline__ void mask(const Work& w, const Steps<X>& step, int row, int column,
                                     float (&p)[X::kQueries / 2]) {
  if (w.causal) {
    const int visible = step.query * X::kQueries - step.block * kKeys;  // keys before these queries
    if (visible >= kKeys - 1) return;
    const int seen = visible + column - row;
#pragma unroll
    for (int j = 0; j < X::kQueries / 2; ++j)
      if (j % 4 / 2 * 8 - j / 4 * 8 - j % 2 > seen) p[j] = -INFINITY;
  } else if ((step.block + 1) * kKeys > w.rows) {
    const int seen = w.rows - 1 - step.block * kKeys - row;
#pragma unroll
    for (int j = 0; j < X::kQueries / 2; ++j)
      if (j % 4 / 2 * 8 > seen) p[j] = -INFINITY;
  }
}

// The same of keys before a query's document.
template <class X>
__device__ __forceinline__ void mask_documents(const Work& w, const Steps<X>& step, int row, int column,
                                               float (&p)[X::kQueries / 2]) {
  if (step.latest_start <= step.block * kKeys) return;
  const int* const starts = w.starts + static_cast<std::int64_t>(step.batch) * w.rows;
  const int key = step.block * kKeys + row, first = step.query * X::kQueries + column;
#pragma unroll
  for (int j = 0; j < X::kQueries / 8; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int start = starts[min(first + 8 * j + e, w.rows - 1)];
      if (key < start) p[4 * j + e] = -INFINITY;
      if (key + 8 < start) p[4 * j + 2 + e] = -INFINITY;
    }
}

// dQ of a block of keys on its way to memory.
template <class X, class T>
__device__ __forceinline__ void hand_over(const Work& w, unsigned char* slot, const Steps<X>& step, int group,
                                          int thread, float (&dq)[32]) {
  if (step.completes(w)) {
    const int before = step.before(w);
    if (before > 0) {
      const std::int64_t half = step.index(w) * 2 + group;
      while (hopper::read_acquire(w.turn + half) != before) {
      }
      const float4* others = reinterpret_cast<const float4*>(w.sums + half * kSums) + thread;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 x = __ldcg(others + j * 128);
        dq[4 * j] += x.x;
        dq[4 * j + 1] += x.y;
        dq[4 * j + 2] += x.z;
        dq[4 * j + 3] += x.w;
      }
    }
    store_rows<T>(slot, 0, dq, thread);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      reinterpret_cast<float4*>(slot)[j * 128 + thread] =
          make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  }
  hopper::fence_shared();
}

// dK or dV of one warpgroup, through shared memory.
template <class X, class T>
__device__ __forceinline__ void store_sum(const CUtensorMap& to, unsigned char* through, int apart,
                                          const float (&c)[X::kDim / 2], const Steps<X>& step, int group, int thread) {
  send_rows<X, T>(to, step.key_head, step.block * kKeys + group * kHalf, step.batch, through, apart, c, kOwn + group,
                  thread);
}

// Products run beside what the threads do themselves: dP beside the exponentials, dV beside dS, dK beside its way into
// shared memory, and the next S, be it of the next block of keys, beside dQ's.
template <class X, class T>
__device__ void compute(const Work& w, Shared<X>& s, int group) {
  using namespace hopper;
  constexpr int kScoresHeld = X::kQueries / 2, kColumns = X::kQueries / 8;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int my_row = group * kHalf + thread / 32 * 16 + lane / 4;  // of the keys; and the eighth behind
  const int my_column = lane % 4 * 2;                              // of eight queries; and the next
  const std::uint32_t my_scores = row_in(s.ds, group * kHalf + thread / 32 * 16, lane);
  Stage<2> keys, queries;
  Stage<X::kValueStages> values;
  Stage<X::kSlots, 2> slot(group);  // the warpgroups take them in turn
  hopper::wait(s.keys_full[0], 0);
  int t = s.tile[0];
  if (t < 0) return;
  Steps<X> step(w, t);
  hopper::wait(s.queries_full[0], 0);
  float dk[X::kDim / 2], dv[X::kDim / 2], p[kScoresHeld];
  begin_scores<X, T>(p, s.k[0], group, s.q[0]);
  products_wait<0>();
  hold(p);
  // Whether dS of the step before has been read by the other warpgroup; whether dK of the block before is on its way.
  bool scores_taken = true, storing = false;
  for (bool first = true;;) {
    const int at = queries.at, keys_at = keys.at;
    const bool last = step.last(w);
    if (first) hopper::wait(s.values_full[values.at], values.phase);
    float dp[kScoresHeld];
    begin_scores<X, T>(dp, s.v[values.at], group, s.d[at]);
    mask<X>(w, step, my_row, my_column, p);
    if constexpr (X::kDocuments) mask_documents<X>(w, step, my_row, my_column, p);
    std::uint32_t a[X::kQueries / 4];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float2 lse = *reinterpret_cast<const float2*>(&s.lse[at][8 * j + my_column]);
      p[4 * j] = exp2_fast(fmaf(p[4 * j], w.scale_log2, -lse.x));
      p[4 * j + 1] = exp2_fast(fmaf(p[4 * j + 1], w.scale_log2, -lse.y));
      p[4 * j + 2] = exp2_fast(fmaf(p[4 * j + 2], w.scale_log2, -lse.x));
      p[4 * j + 3] = exp2_fast(fmaf(p[4 * j + 3], w.scale_log2, -lse.y));
      a[2 * j] = pair<T>(p[4 * j], p[4 * j + 1]);
      a[2 * j + 1] = pair<T>(p[4 * j + 2], p[4 * j + 3]);
    }
    begin_sum<X, T>(dv, a, s.d[at], first);
    products_wait<1>();
    hold(dp);
    if (last) {
      arrive(s.values_empty[values.at]);
      values.next();
    }
    std::uint32_t b[X::kQueries / 4];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(&s.delta[at][8 * j + my_column]);
      b[2 * j] =
          pair<T>(p[4 * j] * fmaf(dp[4 * j], w.scale, -delta.x), p[4 * j + 1] * fmaf(dp[4 * j + 1], w.scale, -delta.y));
      b[2 * j + 1] = pair<T>(p[4 * j + 2] * fmaf(dp[4 * j + 2], w.scale, -delta.x),
                             p[4 * j + 3] * fmaf(dp[4 * j + 3], w.scale, -delta.y));
    }
    if (!scores_taken) wait_at(kScoresFree + group, 256);
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) store_matrices((my_scores ^ (j % 8 << 4)) + j / 8 * (kKeys * 128), b + 2 * j);
    fence_shared();
    begin_sum<X, T>(dk, b, s.q[at], first);
    products_wait<1>();  // dV: what it read is free
    hold(dv);

    if (!X::kRoom && storing && thread == 0) {
      wait_stores_read();
      arrive(s.keys_empty[keys_at ^ 1]);
    }
    storing = false;

    // What is next; when nothing is, the product below is of what lies there and nobody's.
    if (last) {
      keys.next();
      hopper::wait(s.keys_full[keys.at], keys.phase);
      t = s.tile[keys.at];
    }
    queries.next();
    if (t >= 0) hopper::wait(s.queries_full[queries.at], queries.phase);
    wait_at(kScores, 256);
    float dq[32], next[kScoresHeld];
    {
      const std::uint64_t scores = hopper::tile(s.ds[X::kTiles == 2 ? 0 : group]);
      const std::uint64_t columns = hopper::tile(s.k[keys_at] + (X::kTiles == 2 ? group * (kKeys * 128) : 0));
      products_begin();
#pragma unroll
      for (int n = 0; n < 8; ++n) multiply_across<T>(dq, scores + n * kAcross, columns + n * kAcross, n);
      products_end();
    }
    begin_scores<X, T>(next, s.k[keys.at], group, s.q[queries.at]);
    if (last && !X::kRoom) {  // dV leaves beside these products
      hopper::wait(s.slot_empty[slot.at], slot.phase ^ 1);
      store_sum<X, T>(w.dv, s.dq[slot.at], kBox, dv, step, group, thread);
    }
    products_wait<1>();
    hold(dk);
    hold(dq);
    arrive_at(kScoresFree + 1 - group, 256);
    arrive(s.queries_empty[at]);
    hopper::wait(s.slot_empty[slot.at], slot.phase ^ 1);
    if (last && !X::kRoom) {
      if (thread == 0) wait_stores_read();  // dV
      wait_at(kOwn + group, 128);
    }
    hand_over<X, T>(w, s.dq[slot.at], step, group, thread, dq);
    arrive(s.slot_full[slot.at]);
    slot.next();
    scores_taken = false;
    products_wait<0>();
    hold(next);
#pragma unroll
    for (int j = 0; j < kScoresHeld; ++j) p[j] = next[j];
    first = last;
    if (!last) {
      step.next(w);
      continue;
    }
    if constexpr (X::kRoom) {
      arrive(s.keys_empty[keys_at]);
      if (thread == 0) wait_stores_read();  // of the tile before
      wait_at(kOwn + group, 128);
      store_sum<X, T>(w.dk, s.out[group], 0, dk, step, group, thread);
      store_sum<X, T>(w.dv, s.out[group] + kBox, 0, dv, step, group, thread);
    } else {
      wait_at(kScoresFree + group, 256);
      scores_taken = true;
      store_sum<X, T>(w.dk, s.k[keys_at] + group * kBox, kKeys * 128, dk, step, group, thread);
      storing = true;
      if (thread != 0) arrive(s.keys_empty[keys_at]);
    }
    if (t < 0) break;
    step = Steps<X>(w, t);
  }
  if (!scores_taken) wait_at(kScoresFree + group, 256);
  if (thread == 0) wait_stores();
}

template <class X, class T>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Work w) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared<X>& s = *reinterpret_cast<Shared<X>*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      hopper::start(s.keys_full[i], 1);
      hopper::start(s.keys_empty[i], 8 * 32 + X::kSlots * 32);  // the warps that compute and those that write
      hopper::start(s.queries_full[i], 1);
      hopper::start(s.queries_empty[i], 8 * 32);
    }
    for (int i = 0; i < X::kSlots; ++i) {
      hopper::start(s.slot_full[i], 128);
      hopper::start(s.slot_empty[i], 32);
    }
    for (int i = 0; i < X::kValueStages; ++i) {
      hopper::start(s.values_full[i], 1);
      hopper::start(s.values_empty[i], 8 * 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    hopper::fence_all();
  }
  __syncthreads();
  if (warp < 4) {
    hopper::give_registers<24>();
    if (warp == 0) {
      if (threadIdx.x == 0) fetch_all<X>(w, s);
    } else if (warp - 1 < X::kSlots) {
      store_queries<X>(w, s, warp - 1);
    }
  } else {
    hopper::take_registers<240>();
    compute<X, T>(w, s, warp / 4 - 1);
  }
}

}  // namespace trireme::ops::cuda::attention_grad
