#include <cuda_fp8.h>

#include "trireme/ops/cuda/common.h"
#include "trireme/ops/quantize/fp8.h"

// fp8_scale and quantize_fp8. What they compute is the same bits in any order.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kBlocks = 1024, kEach = 4;

// NaN is larger than all.
struct LargestOrNan {
  __device__ __forceinline__ float operator()(float a, float b) const { return b > a || b != b ? b : a; }
};

// Of each block of threads.
template <int N, class T>
__global__ void __launch_bounds__(kThreads) largest_kernel(const T* x, std::int64_t n, float* parts) {
  __shared__ float shared[kThreads / 32];
  const LargestOrNan op;
  float largest = 0;
  const std::int64_t apart = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i * N < n; i += kEach * apart) {
    Pack<T, N> packs[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      packs[e] = {};
      if ((i + e * apart) * N < n) packs[e] = load<N>(x + (i + e * apart) * N);
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e)
#pragma unroll
      for (int j = 0; j < N; ++j) largest = op(largest, fabsf(wide(packs[e].v[j])));
  }
  largest = block_reduce(largest, shared, op);
  if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}

__global__ void __launch_bounds__(kThreads) join_kernel(const float* parts, int count, float most, float* scale) {
  __shared__ float shared[kThreads / 32];
  const LargestOrNan op;
  float largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) largest = op(largest, parts[i]);
  largest = block_reduce(largest, shared, op);
  if (threadIdx.x == 0) *scale = (largest < kSmallestFp8 ? kSmallestFp8 : largest) / most;
}

std::int64_t blocks_for(std::int64_t n) {
  return std::clamp<std::int64_t>(pieces(n, 8 * kThreads * kEach), 1, kBlocks);
}

// A tile of 128 rows and columns goes through shared memory, where it is turned.
constexpr int kTile = 128, kPitch = kTile + 4;

struct Quantize {
  const float* scale;
  std::uint8_t *as_rows, *as_columns;
  std::int64_t rows, columns;
};

template <bool E5M2, int N, class T>
__global__ void __launch_bounds__(kThreads) quantize_kernel(const T* x, Quantize q) {
  __shared__ __align__(16) std::uint8_t tile[kTile * kPitch];
  constexpr __nv_fp8_interpretation_t kFormat = E5M2 ? __NV_E5M2 : __NV_E4M3;
  const float inverse = 1.0F / *q.scale;
  const std::int64_t top = static_cast<std::int64_t>(blockIdx.y) * kTile,
                     left = static_cast<std::int64_t>(blockIdx.x) * kTile;
  constexpr int kAcross = kTile / N, kDown = kThreads / kAcross;
  const int column = static_cast<int>(threadIdx.x) % kAcross * N, first = static_cast<int>(threadIdx.x) / kAcross;
#pragma unroll 4
  for (int row = first; row < kTile; row += kDown) {
    if (top + row >= q.rows || left + column >= q.columns) continue;
    const std::int64_t at = (top + row) * q.columns + left + column;
    const Pack<T, N> in = load<N>(x + at);
    Pack<std::uint8_t, N> codes;
#pragma unroll
    for (int j = 0; j < N; ++j) codes.v[j] = __nv_cvt_float_to_fp8(wide(in.v[j]) * inverse, __NV_SATFINITE, kFormat);
    if (q.as_rows != nullptr) store<N>(q.as_rows + at, codes);
    if (q.as_columns == nullptr) continue;
    constexpr int kWord = N > 1 ? 4 : 1;
#pragma unroll
    for (int j = 0; j < N; j += kWord) {
      Pack<std::uint8_t, kWord> word;
#pragma unroll
      for (int k = 0; k < kWord; ++k) word.v[k] = codes.v[j + k];
      store<kWord>(tile + row * kPitch + column + j, word);
    }
  }
  if (q.as_columns == nullptr) return;
  __syncthreads();
  // Sixteen rows of a column at a time where they lie at a multiple of 16 bytes.
  constexpr int kPiece = N > 1 ? 16 : 1, kPieces = kTile / kPiece;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPieces; i += kThreads) {
    // Neighbouring threads read neighbouring columns, and write to a few rows of the result.
    const int c = i % 32 + i / (32 * kPieces) * 32, r = i / 32 % kPieces * kPiece;
    if (left + c >= q.columns || top + r >= q.rows) continue;
    Pack<std::uint8_t, kPiece> codes;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) codes.v[j] = tile[(r + j) * kPitch + c];
    store<kPiece>(q.as_columns + (left + c) * q.rows + top + r, codes);
  }
}

}  // namespace

std::size_t fp8_scale_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(blocks_for(spec.inputs[0].elements())) * sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_fp8_scale_cuda(const ir::KernelSpec& spec) {
  const std::int64_t n = spec.inputs[0].elements();
  const float most = spec.attributes.text("format") == "e5m2" ? kE5M2.most : kE4M3.most;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([n, most](const device::Launch& launch) {
      auto* const parts = static_cast<float*>(launch.workspace);
      const auto count = blocks(blocks_for(n));
      if (n % kWidest<T> == 0 && aligned16(launch.inputs[0]))
        largest_kernel<kWidest<T>><<<count, kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), n, parts);
      else
        largest_kernel<1><<<count, kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), n, parts);
      join_kernel<<<1, kThreads, 0, stream_of(launch)>>>(parts, static_cast<int>(count), most, launch.out<float>(0));
      device::cuda::launched("fp8_scale");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_quantize_fp8_cuda(const ir::KernelSpec& spec) {
  const Fp8Matrix m(spec.inputs[0], spec.attributes);
  const bool e5m2 = spec.attributes.text("format") == "e5m2";
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([m, e5m2](const device::Launch& launch) {
      if (m.rows == 0 || m.columns == 0) return;
      const Quantize q{launch.in<float>(1), m.as_rows ? launch.out<std::uint8_t>(0) : nullptr,
                       m.as_columns ? launch.out<std::uint8_t>(m.as_rows ? 1 : 0) : nullptr, m.rows, m.columns};
      constexpr int N = kWidest<T>;
      const bool wide_ones = m.columns % N == 0 && m.rows % 16 == 0 && aligned16(launch.inputs[0]) &&
                             aligned16(q.as_rows) && aligned16(q.as_columns);
      const dim3 grid(blocks(pieces(m.columns, kTile)), blocks(pieces(m.rows, kTile)));
      const auto run = [&](auto kernel) { kernel<<<grid, kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), q); };
      if (wide_ones)
        e5m2 ? run(quantize_kernel<true, N, T>) : run(quantize_kernel<false, N, T>);
      else
        e5m2 ? run(quantize_kernel<true, 1, T>) : run(quantize_kernel<false, 1, T>);
      device::cuda::launched("quantize_fp8");
    });
  });
}

}  // namespace trireme::ops
