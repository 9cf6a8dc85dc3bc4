#pragma once
#include "trireme/ops/attention/attention_hopper_boxes.cuh"

// The kernel of attention within documents on Hopper. A block of threads takes 128 queries of one head and passes by
// the blocks of 128 keys that they see, from their own back to the one in which their first document begins.
//
// Two warpgroups compute, each for half of the queries, one thread of a third fetches what they need. While the tensor
// cores multiply P of one block of keys with its values and the queries with the next keys, nothing waits for either
// until the next scores are there; their exponentials run beside the former product.
//
// Rows and columns past the last are fetched as zeros and not stored.
namespace trireme::ops::cuda::attention_forward {

using namespace attention_boxes;

constexpr int kRows = 128;  // queries, or keys, of a block
constexpr int kStages = 2;
constexpr int kThreads = 3 * 128;
constexpr float kLog2 = 0.693147180559945309F;

template <int Dim>
struct Extents {
  static constexpr int kDim = Dim;
  static constexpr int kTiles = Dim / 64;  // of 64 columns
  static constexpr int kBytes = kRows * Dim * 2;
};

struct Work {
  CUtensorMap q, k, v, o;
  const std::int32_t* starts;  // [batch, rows]
  float* lse;
  int rows, heads, group, blocks;
  float scale_log2;
};

template <class X>
struct Shared {
  unsigned char q[X::kBytes];  // and, in the end, o
  unsigned char k[kStages][X::kBytes], v[kStages][X::kBytes];
  hopper::Barrier queries_full, keys_full[kStages], keys_empty[kStages], values_full[kStages], values_empty[kStages];
};

// Which queries a block of threads has, and which blocks of keys they see. The longest come first.
struct Tile {
  int batch, head, block, first_key, latest_start;
  __device__ explicit Tile(const Work& w) {
    const int pairs = static_cast<int>(gridDim.x) / w.blocks, pair = static_cast<int>(blockIdx.x) % pairs;
    block = w.blocks - 1 - static_cast<int>(blockIdx.x) / pairs;
    batch = pair / w.heads;
    head = pair % w.heads;
    first_key = start(w, block * kRows) / kRows;
    latest_start = start(w, block * kRows + kRows - 1);
  }
  // Of the document of a query; one past the last has that of the last.
  __device__ int start(const Work& w, int query) const {
    return w.starts[static_cast<std::int64_t>(batch) * w.rows + min(query, w.rows - 1)];
  }
};

// By one thread.
template <class X>
__device__ void fetch_all(const Work& w, Shared<X>& s, const Tile& t) {
  const int key_head = t.head / w.group;
  fetch_tile<X, kRows>(s.q, w.q, t.head, t.block * kRows, t.batch, s.queries_full);
  hopper::arrive_with(s.queries_full, X::kBytes);
  hopper::Stage<kStages> stage;
  for (int n = t.block; n >= t.first_key; --n, stage.next()) {
    hopper::wait(s.keys_empty[stage.at], stage.phase ^ 1);
    fetch_tile<X, kRows>(s.k[stage.at], w.k, key_head, n * kRows, t.batch, s.keys_full[stage.at]);
    hopper::arrive_with(s.keys_full[stage.at], X::kBytes);
    hopper::wait(s.values_empty[stage.at], stage.phase ^ 1);
    fetch_tile<X, kRows>(s.v[stage.at], w.v, key_head, n * kRows, t.batch, s.values_full[stage.at]);
    hopper::arrive_with(s.values_full[stage.at], X::kBytes);
  }
}

// Queries of one warpgroup times keys: p[4j …] are keys 8j and on.
template <class X, class T>
__device__ __forceinline__ void begin_scores(float (&p)[64], const unsigned char* queries, int group,
                                             const unsigned char* keys) {
  const std::uint64_t a = hopper::tile(queries + group * kBox), b = hopper::tile(keys);
  hopper::products_begin();
#pragma unroll
  for (int n = 0; n < X::kDim / 16; ++n) {
    const std::uint64_t on = n % 4 * hopper::kAlong + n / 4 * (kRows * 128 >> 4);
    hopper::multiply_along<T>(p, a + on, b + on, n);
  }
  hopper::products_end();
}

// o += P · values.
template <class X, class T>
__device__ __forceinline__ void begin_sum(float (&o)[X::kDim / 2], const std::uint32_t (&p)[32],
                                          const unsigned char* values, bool first) {
  const std::uint64_t b = hopper::wide_tile(values, kRows * 128);
  hopper::products_begin();
#pragma unroll
  for (int n = 0; n < kRows / 16; ++n)
    hopper::multiply_held<T>(o, p + 4 * n, b + n * hopper::kAcross, n == 0 && first ? 0 : 1);
  hopper::products_end();
}

// One warpgroup's rows: thread t has rows `row` and row + 8, and of each eight keys two.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  float factor[2];  // by which sums so far are to be multiplied

  // From scores to exponentials; `start` are of the two rows' documents, `row` and `column` count in the block.
  __device__ __forceinline__ void take(const Work& w, const Tile& t, int n, int row, int column, const int (&start)[2],
                                       float (&p)[64]) {
    if (n == t.block) {
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if (j / 4 * 8 + column + j % 2 > row + j % 4 / 2 * 8) p[j] = -INFINITY;
    }
    if (n * kRows < t.latest_start) {
      const int key = n * kRows + column;
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if (key + j / 4 * 8 + j % 2 < start[j % 4 / 2]) p[j] = -INFINITY;
    }
    float most[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < 64; ++j) most[j % 4 / 2] = fmaxf(most[j % 4 / 2], p[j]);
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffU, most[half], 1));
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffU, most[half], 2));
      base[half] = most[half] == -INFINITY ? 0.0F : most[half] * w.scale_log2;  // a row that sees none of these keys
      factor[half] = hopper::exp2_fast(fmaf(top[half], w.scale_log2, -base[half]));
      top[half] = most[half];
      total[half] *= factor[half];
    }
#pragma unroll
    for (int j = 0; j < 64; ++j) {
      p[j] = hopper::exp2_fast(fmaf(p[j], w.scale_log2, -base[j % 4 / 2]));
      total[j % 4 / 2] += p[j];
    }
  }
};

template <class T>
__device__ __forceinline__ void pack(std::uint32_t (&a)[32], const float (&p)[64]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) a[j] = pair<T>(p[2 * j], p[2 * j + 1]);
}

template <class X, class T>
__device__ void compute(const Work& w, Shared<X>& s, const Tile& t, int group) {
  using namespace hopper;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int row = group * kHalf + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  const int start[2] = {t.start(w, t.block * kRows + row), t.start(w, t.block * kRows + row + 8)};
  Softmax softmax;
  float o[X::kDim / 2], p[64];
  std::uint32_t a[32];
  Stage<kStages> keys, values;
  hopper::wait(s.queries_full, 0);
  hopper::wait(s.keys_full[0], 0);
  begin_scores<X, T>(p, s.q, group, s.k[0]);
  products_wait<0>();
  hold(p);
  arrive(s.keys_empty[0]);
  softmax.take(w, t, t.block, row, column, start, p);
  pack<T>(a, p);
  for (int n = t.block - 1; n >= t.first_key; --n) {
    keys.next();
    hopper::wait(s.keys_full[keys.at], keys.phase);
    begin_scores<X, T>(p, s.q, group, s.k[keys.at]);
    hopper::wait(s.values_full[values.at], values.phase);
    begin_sum<X, T>(o, a, s.v[values.at], n == t.block - 1);
    products_wait<1>();
    hold(p);
    arrive(s.keys_empty[keys.at]);
    softmax.take(w, t, n, row, column, start, p);
    products_wait<0>();
    hold(o);
    arrive(s.values_empty[values.at]);
    values.next();
#pragma unroll
    for (int j = 0; j < X::kDim / 2; ++j) o[j] *= softmax.factor[j % 4 / 2];
    pack<T>(a, p);
  }
  hopper::wait(s.values_full[values.at], values.phase);
  begin_sum<X, T>(o, a, s.v[values.at], t.first_key == t.block);
  float scale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = softmax.total[half];
    total += __shfl_xor_sync(0xffffffffU, total, 1);
    total += __shfl_xor_sync(0xffffffffU, total, 2);
    scale[half] = 1 / total;
    const int query = t.block * kRows + row + half * 8;
    if (column == 0 && query < w.rows)
      w.lse[(static_cast<std::int64_t>(t.batch) * w.heads + t.head) * w.rows + query] =
          (softmax.top[half] * w.scale_log2 + log2f(total)) * kLog2;
  }
  products_wait<0>();
  hold(o);
#pragma unroll
  for (int j = 0; j < X::kDim / 2; ++j) o[j] *= scale[j % 4 / 2];
  // Nothing else reads this half of the queries.
  send_rows<X, T>(w.o, t.head, t.block * kRows + group * kHalf, t.batch, s.q + group * kBox, kRows * 128, o, 1 + group,
                  thread);
  if (thread == 0) wait_stores();
}

template <class X, class T>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Work w) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared<X>& s = *reinterpret_cast<Shared<X>*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    hopper::start(s.queries_full, 1);
    for (int i = 0; i < kStages; ++i) {
      hopper::start(s.keys_full[i], 1);
      hopper::start(s.keys_empty[i], 8 * 32);
      hopper::start(s.values_full[i], 1);
      hopper::start(s.values_empty[i], 8 * 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    hopper::fence_all();
  }
  __syncthreads();
  const Tile t(w);
  if (warp < 4) {
    hopper::give_registers<24>();
    if (threadIdx.x == 0) fetch_all<X>(w, s, t);
  } else {
    hopper::take_registers<240>();
    compute<X, T>(w, s, t, warp / 4 - 1);
  }
}

}  // namespace trireme::ops::cuda::attention_forward
