#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/peers.h"

namespace trireme::device::cuda {
namespace {

__device__ float wide(float x) { return x; }
__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float wide(__half x) { return __half2float(x); }
__device__ void narrow(float x, float& to) { to = x; }
__device__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
__device__ void narrow(float x, __half& to) { to = __float2half_rn(x); }

// As on the CPU, a NaN wins.
__device__ float larger(float a, float b) { return a > b || isnan(a) ? a : b; }

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

template <class T, int N>
__global__ void combine_kernel(const __grid_constant__ Peers peers, std::int64_t packs, bool maximum) {
  using P = Pack<T, N>;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  float sum[N];
  for (int s = 0; s < peers.sources; ++s) {
    const P pack = static_cast<const P*>(peers.from[s])[i];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float value = wide(pack.v[k]);
      sum[k] = s == 0 ? value : maximum ? larger(sum[k], value) : sum[k] + value;
    }
  }
  P result;
#pragma unroll
  for (int k = 0; k < N; ++k) narrow(sum[k], result.v[k]);
  for (int t = 0; t < peers.targets; ++t) static_cast<P*>(peers.to[t])[i] = result;
}

template <class T>
__global__ void add_runs_kernel(std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride,
                                std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  const std::size_t run = blockIdx.y;
  T& sum = reinterpret_cast<T*>(to + run * to_stride)[i];
  narrow(wide(sum) + wide(reinterpret_cast<const T*>(from + run * from_stride)[i]), sum);
}

template <class T>
void add_runs_as(const Streams::Runs& to, const Streams::Runs& from, std::int64_t elements, std::int64_t count,
                 cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr std::int64_t kMax = 65535;  // blocks of a grid along y
  for (std::int64_t first = 0; first < count; first += kMax) {
    const std::int64_t some = std::min(count - first, kMax);
    const auto at = static_cast<std::size_t>(first);
    const dim3 blocks(static_cast<unsigned>((elements + kThreads - 1) / kThreads), static_cast<unsigned>(some));
    add_runs_kernel<T><<<blocks, kThreads, 0, stream>>>(to.first + at * to.stride, to.stride,
                                                        from.first + at * from.stride, from.stride, elements);
    TRI_CUDA(cudaGetLastError());
  }
}

template <class T, int N>
void launch(const Peers& peers, std::int64_t packs, bool maximum, cudaStream_t stream) {
  constexpr int kThreads = 256;
  if (packs == 0) return;
  combine_kernel<T, N>
      <<<static_cast<unsigned>((packs + kThreads - 1) / kThreads), kThreads, 0, stream>>>(peers, packs, maximum);
  TRI_CUDA(cudaGetLastError());
}

template <class T>
void combine_as(const Peers& peers, std::int64_t count, bool maximum, cudaStream_t stream) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool wide = std::all_of(peers.from.begin(), peers.from.begin() + peers.sources, aligned) &&
                    std::all_of(peers.to.begin(), peers.to.begin() + peers.targets, aligned);
  const std::int64_t packs = wide ? count / kWide : 0;
  launch<T, kWide>(peers, packs, maximum, stream);
  Peers rest = peers;
  for (int s = 0; s < rest.sources; ++s) rest.from[s] = static_cast<const T*>(peers.from[s]) + packs * kWide;
  for (int t = 0; t < rest.targets; ++t) rest.to[t] = static_cast<T*>(peers.to[t]) + packs * kWide;
  launch<T, 1>(rest, count - packs * kWide, maximum, stream);
}

}  // namespace

void combine(const Peers& peers, std::int64_t count, DType dtype, bool maximum, void* stream) {
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (dtype) {
    case DType::f32: return combine_as<float>(peers, count, maximum, on);
    case DType::bf16: return combine_as<__nv_bfloat16>(peers, count, maximum, on);
    case DType::f16: return combine_as<__half>(peers, count, maximum, on);
    default: not_a_compute_type(dtype);
  }
}

void add_runs(const Streams::Runs& to, const Streams::Runs& from, std::int64_t elements, std::int64_t count,
              DType dtype, void* stream) {
  if (elements == 0 || count == 0) return;
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (dtype) {
    case DType::f32: return add_runs_as<float>(to, from, elements, count, on);
    case DType::bf16: return add_runs_as<__nv_bfloat16>(to, from, elements, count, on);
    case DType::f16: return add_runs_as<__half>(to, from, elements, count, on);
    default: not_a_compute_type(dtype);
  }
}

void zero(void* memory, std::size_t bytes, void* stream) {
  if (bytes > 0) TRI_CUDA(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream)));
}

}  // namespace trireme::device::cuda
