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
  int rows, dim, heads, blocks;
  float scale;
};

// What the kernel needs of every row; a block of threads takes a block of queries of one head, eight columns a thread.
template <class X, class T>
__global__ void __launch_bounds__(256) start_kernel(const Start w) {
  constexpr int kParts = X::kDim / 8, kAtOnce = 256 / kParts, kPasses = X::kQueries / kAtOnce;
  const int i = static_cast<int>(blockIdx.x) % w.blocks, pair = static_cast<int>(blockIdx.x) / w.blocks;
  const int head = pair % w.heads, batch = pair / w.heads;
  if (threadIdx.x < 2) w.turn[static_cast<std::int64_t>(blockIdx.x) * 2 + threadIdx.x] = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) *w.ticket = 0;
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

// [batch, rows, heads, dim] by strides, in boxes of 64 rows and columns of one head.
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
  const cuuint64_t extents[4] = {static_cast<cuuint64_t>(spec.dim), static_cast<cuuint64_t>(heads),
                                 static_cast<cuuint64_t>(spec.rows), static_cast<cuuint64_t>(spec.batch)};
  const cuuint64_t bytes[3] = {static_cast<cuuint64_t>(strides[2]) * 2, static_cast<cuuint64_t>(strides[1]) * 2,
                               static_cast<cuuint64_t>(strides[0]) * 2};
  const cuuint32_t box[4] = {64, 1, kHalf, 1}, steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, spec.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(data), extents, bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) device::cuda::check(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

template <class F>
decltype(auto) with_extents(const FlashSpec& spec, F&& f) {
  return spec.dim <= 64 ? f(Extents<64>{}) : f(Extents<128>{});
}

// The parts of the workspace, each aligned.
struct Parts {
  std::int64_t query_blocks;  // of a head
  std::size_t sums, lse, delta, turn, ticket, bytes;
  explicit Parts(const FlashSpec& spec) {
    const std::int64_t queries = with_extents(spec, []<class X>(X) { return X::kQueries; });
    query_blocks = pieces(spec.rows, queries);
    const auto all = static_cast<std::size_t>(spec.batch * spec.heads * query_blocks);
    const std::size_t rows = all * static_cast<std::size_t>(queries);
    sums = 0;
    lse = sums + all * 2 * kSums * sizeof(float);
    delta = lse + rows * sizeof(float);
    turn = delta + rows * sizeof(float);
    ticket = turn + (all * 2 * sizeof(int) + 127) / 128 * 128;
    bytes = ticket + 128 + 128;  // and what aligning the first takes
  }
};

template <class X, class T>
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

bool hopper_attention_grad_fits(const FlashSpec& s) {
  return size_of(s.dtype) == 2 && s.dim % 8 == 0 && s.dim <= 128 && s.rows > 0 && s.batch > 0 &&
         s.batch * s.heads * pieces(s.rows, kHalf) < (std::int64_t{1} << 30);
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
  with_extents(spec, [&]<class X>(X) {
    if (spec.dtype == DType::bf16)
      run<X, Bf16>(static_cast<cudaStream_t>(stream), spec, g, workspace);
    else
      run<X, F16>(static_cast<cudaStream_t>(stream), spec, g, workspace);
  });
}

}  // namespace trireme::ops::cuda
