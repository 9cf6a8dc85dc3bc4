#include "trireme/ops/attention/attention_grad_hopper.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/hopper.cuh"

// A block of threads takes a block of 128 keys of one head and passes by the blocks of queries that see it. With
// S = QKᵀ, P = exp(S·scale − lse) and dP = dO·Vᵀ it computes, keys down and queries across,
//   dV += Pᵀ·dO,   dSᵀ = Pᵀ∘(dPᵀ − delta)·scale,   dK += dSᵀ·Q,   and   dQ += dS·K.
// dQ is a sum over blocks of keys, that is over blocks of threads. It is kept in memory as f32 and added to in a fixed
// order: block i of the queries gets that of keys i first, then i−1, … 0, each waiting for its turn. Block j of the
// keys begins with the queries of its own number, so that all are in step and none waits long; blocks of threads take
// their work in the order in which it is waited for, so that what is waited for always runs.
//
// Two warpgroups compute, each for half of the keys and, for dQ, half of the queries. Of a third one warp fetches what
// they need (two blocks ahead) and two write dQ.
namespace trireme::ops::cuda {
namespace {

using device::cuda::Flash;
using device::cuda::FlashSpec;

constexpr int kDim = 64;
constexpr int kBlock = 128;               // of keys, and of queries
constexpr int kHalf = kBlock / 2;         // what one warpgroup takes
constexpr int kTile = kBlock * kDim * 2;  // bytes
constexpr int kHalfTile = kTile / 2;
constexpr int kThreads = 3 * 128;
constexpr int kSums = kHalf * kDim;  // floats of dQ of one warpgroup

struct Work {
  CUtensorMap q, k, v, d, dq, dk, dv;
  const float *lse, *delta;  // of each row of each head: log2 Σ exp, and Σ dO·O·scale
  float* sums;               // of dQ, in the order of the threads' registers
  int* turn;                 // of each half block of queries: blocks of keys added
  int* ticket;
  int heads, key_heads, group, blocks, tiles;
  float scale, scale_log2;
};

struct Shared {
  unsigned char k[2][kTile], v[2][kTile], q[2][kTile], d[2][kTile];
  unsigned char ds[2][kTile];      // by half of the queries: keys down, queries across
  unsigned char dq[2][kSums * 4];  // by warpgroup
  unsigned char dk[2][kHalfTile], dv[2][kHalfTile];
  float lse[2][kBlock], delta[2][kBlock];
  hopper::Barrier keys_full[2], keys_empty[2], queries_full[2], queries_empty[2];
  int tile[2];
};

// Barriers of the block.
constexpr int kScores = 1;      // dS is there
constexpr int kScoresFree = 2;  // + warpgroup: the other one has read dS
constexpr int kQueryFull = 4;   // + warpgroup: dQ is there
constexpr int kQueryFree = 6;   // + warpgroup: dQ has been taken
constexpr int kOwn = 8;         // + warpgroup

// One block of keys, and the blocks of queries in turn.
struct Tile {
  int batch, key_head, block;
  __device__ Tile(const Work& w, int t) {
    const int pair = t / w.blocks;
    block = w.blocks - 1 - t % w.blocks;
    batch = pair / w.key_heads;
    key_head = pair % w.key_heads;
  }
  template <class F>
  __device__ void for_each(const Work& w, F f) const {
    for (int head = key_head * w.group; head < (key_head + 1) * w.group; ++head)
      for (int i = block; i < w.blocks; ++i) f(head, i);
  }
  // Of half a block of queries, among all.
  __device__ std::int64_t half(const Work& w, int head, int i, int which) const {
    return (static_cast<std::int64_t>(batch * w.heads + head) * w.blocks + i) * 2 + which;
  }
};

// Which of two stages, and in which phase of its barriers.
struct Stage {
  int at = 0, phase = 0;
  __device__ void next() {
    at ^= 1;
    if (at == 0) phase ^= 1;
  }
};

__device__ __forceinline__ void fetch_tile(unsigned char* to, const CUtensorMap& from, int head, int row, int batch,
                                           hopper::Barrier& b) {
  hopper::fetch_box(to, from, head, row, batch, b);
  hopper::fetch_box(to + kHalfTile, from, head, row + kHalf, batch, b);
}

// By one thread.
__device__ void fetch_all(const Work& w, Shared& s) {
  Stage keys, queries;
  for (;; keys.next()) {
    hopper::wait(s.keys_empty[keys.at], keys.phase ^ 1);
    const int t = atomicAdd(w.ticket, 1);
    s.tile[keys.at] = t < w.tiles ? t : -1;
    if (t >= w.tiles) break;
    const Tile tile(w, t);
    hopper::Barrier& full = s.keys_full[keys.at];
    fetch_tile(s.k[keys.at], w.k, tile.key_head, tile.block * kBlock, tile.batch, full);
    fetch_tile(s.v[keys.at], w.v, tile.key_head, tile.block * kBlock, tile.batch, full);
    hopper::arrive_with(full, 2 * kTile);
    tile.for_each(w, [&](int head, int i) {
      hopper::wait(s.queries_empty[queries.at], queries.phase ^ 1);
      hopper::Barrier& there = s.queries_full[queries.at];
      fetch_tile(s.q[queries.at], w.q, head, i * kBlock, tile.batch, there);
      fetch_tile(s.d[queries.at], w.d, head, i * kBlock, tile.batch, there);
      const std::int64_t row = tile.half(w, head, i, 0) * kHalf;
      hopper::fetch_bytes(s.lse[queries.at], w.lse + row, kBlock * 4, there);
      hopper::fetch_bytes(s.delta[queries.at], w.delta + row, kBlock * 4, there);
      hopper::arrive_with(there, 2 * kTile + 2 * kBlock * 4);
      queries.next();
    });
  }
  hopper::arrive(s.keys_full[keys.at]);
}

// By one warp, for one of the warpgroups.
__device__ void store_queries(const Work& w, Shared& s, int group) {
  const bool first = threadIdx.x % 32 == 0;
  for (Stage keys;; keys.next()) {
    hopper::wait(s.keys_full[keys.at], keys.phase);
    const int t = s.tile[keys.at];
    hopper::arrive(s.keys_empty[keys.at]);
    if (t < 0) return;
    const Tile tile(w, t);
    tile.for_each(w, [&](int head, int i) {
      hopper::wait_at(kQueryFull + group, 160);
      const std::int64_t half = tile.half(w, head, i, group);
      if (first) {
        if (tile.block == 0) {  // the last to add: the sum is whole
          hopper::store_box(w.dq, head, i * kBlock + group * kHalf, tile.batch, s.dq[group]);
        } else if (i == tile.block) {
          hopper::store_bytes(w.sums + half * kSums, s.dq[group], kSums * 4);
        } else {
          while (hopper::read_acquire(w.turn + half) != i - tile.block) {
          }
          hopper::fence_all();
          hopper::add_floats(w.sums + half * kSums, s.dq[group], kSums * 4);
        }
        hopper::close_stores();
        hopper::wait_stores_read();
      }
      __syncwarp();
      hopper::arrive_at(kQueryFree + group, 160);
      if (first && tile.block != 0) {
        hopper::wait_stores();
        hopper::fence_all();
        hopper::add_release(w.turn + half, 1);
      }
      __syncwarp();
    });
  }
}

// Where in a tile of rows of 128 bytes a thread names the row that it has a part in, for the first sixteen columns;
// later columns are this xor their bytes.
__device__ __forceinline__ std::uint32_t row_in(const void* tile, int row, int lane) {
  row += lane % 16;  // matrices: rows 0 to 7, rows 8 to 15, both of the next eight columns
  return shared_address(tile) + row * 128 + ((lane / 16 ^ row % 8) << 4);
}

// 64 rows of 64, as 16 bits, where the copy engine expects them.
template <class T>
__device__ __forceinline__ void store_half(void* to, const float (&c)[32], int thread) {
  const std::uint32_t at = row_in(to, thread / 32 * 16, thread % 32);
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const std::uint32_t r[4] = {pair<T>(c[4 * j], c[4 * j + 1]), pair<T>(c[4 * j + 2], c[4 * j + 3]),
                                pair<T>(c[4 * j + 4], c[4 * j + 5]), pair<T>(c[4 * j + 6], c[4 * j + 7])};
    hopper::store_matrices(at ^ (j << 4), r);
  }
}

template <class T>
__device__ __forceinline__ void begin_scores(float (&c)[64], const void* rows, const void* columns) {
  const std::uint64_t a = hopper::tile(rows), b = hopper::tile(columns);
  hopper::products_begin();
#pragma unroll
  for (int n = 0; n < 4; ++n) hopper::multiply_along<T>(c, a + n * hopper::kAlong, b + n * hopper::kAlong, n);
  hopper::products_end();
}

template <class T>
__device__ __forceinline__ void begin_sum(float (&c)[32], const std::uint32_t (&a)[32], const void* rows, bool first) {
  const std::uint64_t b = hopper::tile(rows);
  hopper::products_begin();
#pragma unroll
  for (int n = 0; n < 8; ++n) hopper::multiply_held<T>(c, a + 4 * n, b + n * hopper::kAcross, n == 0 && first ? 0 : 1);
  hopper::products_end();
}

// dQ of a block of keys on its way to memory.
template <class T>
__device__ __forceinline__ void hand_over(const Work& w, Shared& s, const Tile& tile, int head, int i, int group,
                                          int thread, float (&dq)[32]) {
  if (tile.block == 0) {
    if (i > 0) {
      const std::int64_t half = tile.half(w, head, i, group);
      while (hopper::read_acquire(w.turn + half) != i) {
      }
      const float4* sums = reinterpret_cast<const float4*>(w.sums + half * kSums) + thread;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 x = __ldcg(sums + j * 128);
        dq[4 * j] += x.x;
        dq[4 * j + 1] += x.y;
        dq[4 * j + 2] += x.z;
        dq[4 * j + 3] += x.w;
      }
    }
    store_half<T>(s.dq[group], dq, thread);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      reinterpret_cast<float4*>(s.dq[group])[j * 128 + thread] =
          make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  }
  hopper::fence_shared();
  hopper::arrive_at(kQueryFull + group, 160);
}

// dK or dV of a block of keys.
template <class T>
__device__ __forceinline__ void store_sum(const CUtensorMap& to, unsigned char* through, const float (&c)[32],
                                          const Tile& tile, int group, int thread) {
  store_half<T>(through, c, thread);
  hopper::fence_shared();
  hopper::wait_at(kOwn + group, 128);
  if (thread == 0) hopper::store_box(to, tile.key_head, tile.block * kBlock + group * kHalf, tile.batch, through);
}

// Products run beside what the threads do themselves: dP beside the exponentials, dV beside dS, dK beside its way into
// shared memory, and the next S, be it of the next block of keys, beside dQ's.
template <class T>
__device__ void compute(const Work& w, Shared& s, int group) {
  using namespace hopper;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int my_row = group * kHalf + thread / 32 * 16 + lane / 4;  // of the keys; and the eighth behind
  const int my_column = lane % 4 * 2;                              // of eight queries; and the next
  const std::uint32_t my_scores = row_in(s.ds, group * kHalf + thread / 32 * 16, lane);
  Stage keys, queries;
  hopper::wait(s.keys_full[0], 0);
  int t = s.tile[0];
  if (t < 0) return;
  Tile tile(w, t);
  int head = tile.key_head * w.group, i = tile.block;
  bool begun = false, first = true;
  hopper::wait(s.queries_full[0], 0);
  float dk[32], dv[32], p[64];
  begin_scores<T>(p, s.k[0] + group * kHalfTile, s.q[0]);
  products_wait<0>();
  hold(p);
  for (;;) {
    const int at = queries.at, keys_at = keys.at;
    float dp[64];
    begin_scores<T>(dp, s.v[keys_at] + group * kHalfTile, s.d[at]);
    if (i == tile.block) {
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if (my_row + (j % 4 / 2) * 8 > j / 4 * 8 + my_column + j % 2) p[j] = -INFINITY;
    }
    std::uint32_t a[32];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 lse = *reinterpret_cast<const float2*>(&s.lse[at][8 * j + my_column]);
      p[4 * j] = exp2_fast(fmaf(p[4 * j], w.scale_log2, -lse.x));
      p[4 * j + 1] = exp2_fast(fmaf(p[4 * j + 1], w.scale_log2, -lse.y));
      p[4 * j + 2] = exp2_fast(fmaf(p[4 * j + 2], w.scale_log2, -lse.x));
      p[4 * j + 3] = exp2_fast(fmaf(p[4 * j + 3], w.scale_log2, -lse.y));
      a[2 * j] = pair<T>(p[4 * j], p[4 * j + 1]);
      a[2 * j + 1] = pair<T>(p[4 * j + 2], p[4 * j + 3]);
    }
    begin_sum<T>(dv, a, s.d[at], first);
    products_wait<1>();
    hold(dp);
    std::uint32_t b[32];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(&s.delta[at][8 * j + my_column]);
      b[2 * j] =
          pair<T>(p[4 * j] * fmaf(dp[4 * j], w.scale, -delta.x), p[4 * j + 1] * fmaf(dp[4 * j + 1], w.scale, -delta.y));
      b[2 * j + 1] = pair<T>(p[4 * j + 2] * fmaf(dp[4 * j + 2], w.scale, -delta.x),
                             p[4 * j + 3] * fmaf(dp[4 * j + 3], w.scale, -delta.y));
    }
    if (begun) wait_at(kScoresFree + group, 256);
#pragma unroll
    for (int j = 0; j < 16; j += 2) store_matrices((my_scores ^ (j % 8 << 4)) + j / 8 * kTile, b + 2 * j);
    fence_shared();
    begin_sum<T>(dk, b, s.q[at], first);
    products_wait<1>();  // dV: what it read is free

    // What is next; when nothing is, the product below is of what lies there and nobody's.
    const bool last = head == (tile.key_head + 1) * w.group - 1 && i == w.blocks - 1;
    if (last) {
      keys.next();
      hopper::wait(s.keys_full[keys.at], keys.phase);
      t = s.tile[keys.at];
    }
    queries.next();
    if (t >= 0) hopper::wait(s.queries_full[queries.at], queries.phase);
    wait_at(kScores, 256);
    float dq[32], next[64];
    {
      const std::uint64_t scores = hopper::tile(s.ds[group]), all_keys = hopper::tile(s.k[keys_at]);
      products_begin();
#pragma unroll
      for (int n = 0; n < 8; ++n) multiply_across<T>(dq, scores + n * kAcross, all_keys + n * kAcross, n);
      products_end();
    }
    begin_scores<T>(next, s.k[keys.at] + group * kHalfTile, s.q[queries.at]);
    products_wait<1>();
    hold(dk);
    hold(dv);
    hold(dq);
    arrive_at(kScoresFree + 1 - group, 256);
    arrive(s.queries_empty[at]);
    if (begun) wait_at(kQueryFree + group, 160);
    begun = true;
    hand_over<T>(w, s, tile, head, i, group, thread, dq);
    products_wait<0>();
    hold(next);
#pragma unroll
    for (int j = 0; j < 64; ++j) p[j] = next[j];
    first = last;
    if (last) {
      arrive(s.keys_empty[keys_at]);
      if (thread == 0) wait_stores_read();  // of the tile before
      wait_at(kOwn + group, 128);
      store_sum<T>(w.dk, s.dk[group], dk, tile, group, thread);
      store_sum<T>(w.dv, s.dv[group], dv, tile, group, thread);
      if (thread == 0) close_stores();
      if (t < 0) break;
      tile = Tile(w, t);
      head = tile.key_head * w.group;
      i = tile.block;
    } else if (++i == w.blocks) {
      i = tile.block;
      ++head;
    }
  }
  wait_at(kScoresFree + group, 256);
  wait_at(kQueryFree + group, 160);
  if (thread == 0) wait_stores();
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) grad_kernel(const __grid_constant__ Work w) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      hopper::start(s.keys_full[i], 1);
      hopper::start(s.keys_empty[i], 8 * 32 + 2 * 32);  // the warps that compute and those that write
      hopper::start(s.queries_full[i], 1);
      hopper::start(s.queries_empty[i], 8 * 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    hopper::fence_all();
  }
  __syncthreads();
  if (warp < 4) {
    hopper::give_registers<24>();
    if (warp == 0) {
      if (threadIdx.x == 0) fetch_all(w, s);
    } else if (warp < 3) {
      store_queries(w, s, warp - 1);
    }
  } else {
    hopper::take_registers<240>();
    compute<T>(w, s, warp / 4 - 1);
  }
}

struct Start {
  const void *o, *d;
  const float* lse;
  std::int64_t batch_stride, row_stride, head_stride;
  float *lse_log2, *delta;
  int *turn, *ticket;
  int heads, blocks;
  float scale;
};

// What the kernel above needs of every row; a block of threads takes a block of one head. Eight threads to a row.
template <class T>
__global__ void __launch_bounds__(256) start_kernel(const Start w) {
  const int i = static_cast<int>(blockIdx.x) % w.blocks, pair = static_cast<int>(blockIdx.x) / w.blocks;
  const int head = pair % w.heads, batch = pair / w.heads;
  if (threadIdx.x < 2) w.turn[static_cast<std::int64_t>(blockIdx.x) * 2 + threadIdx.x] = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) *w.ticket = 0;
  const int part = static_cast<int>(threadIdx.x) % 8;
  Pack<T, 8> o[4], d[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int row = i * kBlock + n * 32 + static_cast<int>(threadIdx.x) / 8;
    const std::int64_t at = batch * w.batch_stride + row * w.row_stride + head * w.head_stride + part * 8;
    o[n] = load<8>(static_cast<const T*>(w.o) + at);
    d[n] = load<8>(static_cast<const T*>(w.d) + at);
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) sum += wide(o[n].v[c]) * wide(d[n].v[c]);
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kBlock + n * 32 + threadIdx.x / 8;
    if (part == 0) w.delta[at] = sum * w.scale;
    if (part == 1) w.lse_log2[at] = w.lse[at] * kLog2e;
  }
}

// [batch, rows, heads, dim] by strides, in boxes of 64 rows of one head.
CUtensorMap map_of(const FlashSpec& spec, const void* data, std::int64_t heads,
                   const std::array<std::int64_t, 3>& strides) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    TRI_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    return reinterpret_cast<Encode>(found);
  }();
  CUtensorMap map;
  const cuuint64_t extents[4] = {kDim, static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(spec.rows),
                                 static_cast<cuuint64_t>(spec.batch)};
  const cuuint64_t bytes[3] = {static_cast<cuuint64_t>(strides[2]) * 2, static_cast<cuuint64_t>(strides[1]) * 2,
                               static_cast<cuuint64_t>(strides[0]) * 2};
  const cuuint32_t box[4] = {kDim, 1, kHalf, 1}, steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, spec.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(data), extents, bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) device::cuda::check(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

// The parts of the workspace, each aligned.
struct Parts {
  std::size_t sums, lse, delta, turn, ticket, bytes;
  explicit Parts(const FlashSpec& spec) {
    const auto rows = static_cast<std::size_t>(spec.batch * spec.heads * spec.rows);
    sums = 0;
    lse = sums + rows * kDim * sizeof(float);
    delta = lse + rows * sizeof(float);
    turn = delta + rows * sizeof(float);
    ticket = turn + (rows / kHalf * sizeof(int) + 127) / 128 * 128;
    bytes = ticket + 128 + 128;  // and what aligning the first takes
  }
};

template <class T>
void run(cudaStream_t stream, const FlashSpec& spec, const Flash::Gradients& g, void* workspace) {
  auto* const base = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(workspace) + 127) / 128 * 128);
  const Parts parts(spec);
  const auto at = [&]<class P>(P*, std::size_t offset) { return reinterpret_cast<P*>(base + offset); };
  Work w{};
  w.q = map_of(spec, g.q, spec.heads, spec.q);
  w.k = map_of(spec, g.k, spec.key_heads, spec.k);
  w.v = map_of(spec, g.v, spec.key_heads, spec.v);
  w.d = map_of(spec, g.d, spec.heads, spec.o);
  w.dq = map_of(spec, g.dq, spec.heads, spec.q);
  w.dk = map_of(spec, g.dk, spec.key_heads, spec.k);
  w.dv = map_of(spec, g.dv, spec.key_heads, spec.v);
  float* const lse = at(static_cast<float*>(nullptr), parts.lse);
  float* const delta = at(static_cast<float*>(nullptr), parts.delta);
  w.lse = lse;
  w.delta = delta;
  w.sums = at(static_cast<float*>(nullptr), parts.sums);
  w.turn = at(static_cast<int*>(nullptr), parts.turn);
  w.ticket = at(static_cast<int*>(nullptr), parts.ticket);
  w.heads = static_cast<int>(spec.heads);
  w.key_heads = static_cast<int>(spec.key_heads);
  w.group = w.heads / w.key_heads;
  w.blocks = static_cast<int>(spec.rows / kBlock);
  w.tiles = static_cast<int>(spec.batch) * w.key_heads * w.blocks;
  w.scale = spec.scale;
  w.scale_log2 = spec.scale * kLog2e;
  const Start start{g.o,   g.d,    g.lse,    spec.o[0], spec.o[1], spec.o[2], lse,
                    delta, w.turn, w.ticket, w.heads,   w.blocks,  w.scale};
  start_kernel<T><<<blocks(spec.batch * spec.heads * w.blocks), 256, 0, stream>>>(start);
  int device = 0, processors = 0;
  TRI_CUDA(cudaGetDevice(&device));
  TRI_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  TRI_CUDA(cudaFuncSetAttribute(grad_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  grad_kernel<T><<<std::min(processors, w.tiles), kThreads, sizeof(Shared), stream>>>(w);
  device::cuda::launched("attention_grad");
}

}  // namespace

bool hopper_attention_grad_fits(const FlashSpec& s) {
  return size_of(s.dtype) == 2 && s.causal && s.dim == kDim && s.rows >= kBlock && s.rows % kBlock == 0 &&
         s.batch > 0 && s.batch * s.heads * s.rows / kHalf < (std::int64_t{1} << 31);
}

bool hopper_attention_grad_runs() {
  int device = 0, major = 0, minor = 0;
  TRI_CUDA(cudaGetDevice(&device));
  TRI_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TRI_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

std::size_t hopper_attention_grad_workspace(const FlashSpec& spec) { return Parts(spec).bytes; }

void hopper_attention_grad(void* stream, const FlashSpec& spec, const Flash::Gradients& g, void* workspace) {
  if (spec.dtype == DType::bf16)
    run<Bf16>(static_cast<cudaStream_t>(stream), spec, g, workspace);
  else
    run<F16>(static_cast<cudaStream_t>(stream), spec, g, workspace);
}

}  // namespace trireme::ops::cuda
