#include "trireme/ops/attention/attention_grad_hopper.cuh"
#include "trireme/ops/attention/attention_grad_hopper.h"

namespace trireme::ops::cuda {
namespace {

using namespace attention_grad;
using device::cuda::Flash;
using device::cuda::FlashSpec;

struct Start {
  const void *o, *d;
  const float* lse;
  std::int64_t batch_stride, row_stride, head_stride;
  float *lse_log2, *delta;
  int *turn, *ticket;
  const int* starts;
  int* last_query;
  int rows, dim, heads, blocks;
  float scale;
};

// The last block of queries that sees one of a block of keys: documents begin later and later along a row.
template <class X>
__device__ void find_last_query(const Start& w, int batch, int key_block, int key_blocks) {
  const int* const starts = w.starts + static_cast<std::int64_t>(batch) * w.rows;
  const int end = (key_block + 1) * kKeys;
  int sees = key_block * kKeys, hidden = w.rows;  // this query sees some, that one none
  while (hidden - sees > 1) {
    const int middle = (sees + hidden) / 2;
    (starts[middle] < end ? sees : hidden) = middle;
  }
  w.last_query[batch * key_blocks + key_block] = sees / X::kQueries;
}

// What the kernel needs of every row; a block of threads takes a block of queries of one head, eight columns a thread.
template <class X, class T>
__global__ void __launch_bounds__(256) start_kernel(const Start w) {
  constexpr int kParts = X::kDim / 8, kAtOnce = 256 / kParts, kPasses = X::kQueries / kAtOnce;
  const int i = static_cast<int>(blockIdx.x) % w.blocks, pair = static_cast<int>(blockIdx.x) / w.blocks;
  const int head = pair % w.heads, batch = pair / w.heads;
  if (threadIdx.x < 2) w.turn[static_cast<std::int64_t>(blockIdx.x) * 2 + threadIdx.x] = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) *w.ticket = 0;
  if constexpr (X::kDocuments) {
    constexpr int kPerKeys = kKeys / X::kQueries;
    if (head == 0 && i % kPerKeys == 0 && threadIdx.x == 32)
      find_last_query<X>(w, batch, i / kPerKeys, (w.blocks + kPerKeys - 1) / kPerKeys);
  }
  const int part = static_cast<int>(threadIdx.x) % kParts;
  Pack<T, 8> o[kPasses], d[kPasses];
#pragma unroll
  for (int n = 0; n < kPasses; ++n) {
    const int row = i * X::kQueries + n * kAtOnce + static_cast<int>(threadIdx.x) / kParts;
    const std::int64_t at = batch * w.batch_stride + row * w.row_stride + head * w.head_stride + part * 8;
    o[n] = d[n] = {};
    if (row >= w.rows || part * 8 >= w.dim) continue;
    o[n] = load<8>(static_cast<const T*>(w.o) + at);
    d[n] = load<8>(static_cast<const T*>(w.d) + at);
  }
#pragma unroll
  for (int n = 0; n < kPasses; ++n) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) sum += wide(o[n].v[c]) * wide(d[n].v[c]);
#pragma unroll
    for (int offset = kParts / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    const int row = n * kAtOnce + static_cast<int>(threadIdx.x) / kParts, of_head = i * X::kQueries + row;
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * X::kQueries + row;
    if (part == 0) w.delta[at] = sum * w.scale;
    if (part == 1)
      w.lse_log2[at] = of_head < w.rows ? w.lse[static_cast<std::int64_t>(pair) * w.rows + of_head] * kLog2e : INFINITY;
  }
}

template <bool Documents = false, class F>
decltype(auto) with_extents(const FlashSpec& spec, F&& f) {
  return spec.dim <= 64 ? f(Extents<64, Documents>{}) : f(Extents<128, Documents>{});
}

// The parts of the workspace, each aligned.
struct Parts {
  std::int64_t query_blocks;  // of a head
  std::size_t sums, lse, delta, turn, ticket, last_query, bytes;
  Parts(const FlashSpec& spec, bool documents) {
    const std::int64_t queries = with_extents(spec, []<class X>(X) { return X::kQueries; });
    query_blocks = pieces(spec.rows, queries);
    const auto all = static_cast<std::size_t>(spec.batch * spec.heads * query_blocks);
    const std::size_t rows = all * static_cast<std::size_t>(queries);
    sums = 0;
    lse = sums + all * 2 * kSums * sizeof(float);
    delta = lse + rows * sizeof(float);
    turn = delta + rows * sizeof(float);
    ticket = turn + (all * 2 * sizeof(int) + 127) / 128 * 128;
    last_query = ticket + 128;
    const auto key_blocks = static_cast<std::size_t>(spec.batch * pieces(spec.rows, kKeys));
    bytes = last_query + (documents ? key_blocks * sizeof(int) : 0) + 128;  // and what aligning the first takes
  }
};

template <class X, class T>
void run(cudaStream_t stream, const FlashSpec& spec, const Flash::Gradients& g, const std::int32_t* starts,
         void* workspace) {
  auto* const base = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(workspace) + 127) / 128 * 128);
  const Parts parts(spec, X::kDocuments);
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
  int* const last_query = at(static_cast<int*>(nullptr), parts.last_query);
  w.starts = starts;
  w.last_query = last_query;
  w.rows = static_cast<int>(spec.rows);
  w.heads = static_cast<int>(spec.heads);
  w.key_heads = static_cast<int>(spec.key_heads);
  w.group = w.heads / w.key_heads;
  w.causal = spec.causal ? 1 : 0;
  w.key_blocks = static_cast<int>(pieces(spec.rows, kKeys));
  w.query_blocks = static_cast<int>(parts.query_blocks);
  const auto pairs = static_cast<int>(spec.batch * spec.key_heads),
             at_once = static_cast<int>(pieces(X::kTogether, w.key_blocks));
  const int long_first = X::kAllLongFirst ? pairs : std::min(pairs, at_once);
  w.tiles = pairs * w.key_blocks;
  w.short_first = w.tiles - long_first * w.key_blocks;
  w.together = static_cast<int>(pieces(long_first, std::max(1, long_first / at_once)));
  w.scale = spec.scale;
  w.scale_log2 = spec.scale * kLog2e;
  const Start start{g.o,       g.d,
                    g.lse,     spec.o[0],
                    spec.o[1], spec.o[2],
                    lse,       delta,
                    w.turn,    w.ticket,
                    starts,    last_query,
                    w.rows,    static_cast<int>(spec.dim),
                    w.heads,   w.query_blocks,
                    w.scale};
  start_kernel<X, T><<<blocks(spec.batch * spec.heads * w.query_blocks), 256, 0, stream>>>(start);
  int device = 0, processors = 0;
  TRI_CUDA(cudaGetDevice(&device));
  TRI_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  TRI_CUDA(cudaFuncSetAttribute(kernel<X, T>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<X>)));
  kernel<X, T><<<std::min(processors, w.tiles), kThreads, sizeof(Shared<X>), stream>>>(w);
  device::cuda::launched("attention_grad");
}

}  // namespace

bool hopper_attention_fits(const FlashSpec& s) {
  return size_of(s.dtype) == 2 && s.dim % 8 == 0 && s.dim <= 128 && s.rows > 0 && s.batch > 0 &&
         s.batch * s.heads * pieces(s.rows, kHalf) < (std::int64_t{1} << 30);
}

std::size_t hopper_attention_grad_workspace(const FlashSpec& spec, bool documents) {
  return Parts(spec, documents).bytes;
}

void hopper_attention_grad(void* stream, const FlashSpec& spec, const Flash::Gradients& g, const std::int32_t* starts,
                           void* workspace) {
  const auto sized = [&]<class X>(X) {
    if (spec.dtype == DType::bf16)
      run<X, Bf16>(static_cast<cudaStream_t>(stream), spec, g, starts, workspace);
    else
      run<X, F16>(static_cast<cudaStream_t>(stream), spec, g, starts, workspace);
  };
  if (starts != nullptr)
    with_extents<true>(spec, sized);
  else
    with_extents<false>(spec, sized);
}

}  // namespace trireme::ops::cuda
