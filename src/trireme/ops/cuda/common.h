#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "trireme/device/cuda/check.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/op_def.h"

// What the CUDA kernels share. (fmt is left to the sources that nvcc does not read.) Sizes of grids come from the
// problem alone, never from the GPU, so that results are the same bits everywhere; sums of floats are never left to
// atomics.
namespace trireme::ops::cuda {

using Bf16 = __nv_bfloat16;
using F16 = __half;

// Calls `f` with a value of the device's type for f32, bf16 or f16.
template <class F>
decltype(auto) dispatch_native(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(Bf16{});
    case DType::f16: return f(F16{});
    default: not_a_compute_type(dtype);
  }
}

using device::make_kernel;

inline cudaStream_t stream_of(const device::Launch& launch) { return static_cast<cudaStream_t>(launch.native_stream); }

inline std::int64_t pieces(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }
inline unsigned blocks(std::int64_t n) { return static_cast<unsigned>(n); }

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(Bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float wide(F16 x) { return __half2float(x); }

template <class T>
__device__ __forceinline__ T narrow(float x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __float2bfloat16_rn(x);
  else if constexpr (std::is_same_v<T, F16>)
    return __float2half_rn(x);
  else
    return x;
}

inline constexpr float kLog2e = 1.44269504088896340736F, kLn2 = 0.69314718055994530942F;

// N neighbours, moved by one instruction where N elements are 16, 8 or 4 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T>
__device__ __forceinline__ void store(T* p, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}
template <class T>
inline constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

struct Add {
  static constexpr float kNeutral = 0;
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  static constexpr float kNeutral = -INFINITY;
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class Op, class T>
__device__ __forceinline__ T warp_reduce(T x, Op op = {}) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = op(x, __shfl_xor_sync(0xffffffffU, x, offset));
  return x;
}

// Over all threads of a block of whole warps; `shared` holds one value per warp. Every thread gets the result.
template <class Op, class T>
__device__ __forceinline__ T block_reduce(T x, T* shared, Op op = {}) {
  x = warp_reduce(x, op);
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return x;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (unsigned w = 1; w < warps; ++w) x = op(x, shared[w]);
  return x;
}

// y[i] = f(x0[i], x1[i], …), operands and result of one type.
template <int Operands>
struct Operand {
  const void* p[Operands > 0 ? Operands : 1];
};

template <int Operands, int N, class T, class F>
__global__ void map_kernel(T* y, Operand<Operands> in, std::int64_t n, F f) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  Pack<T, N> x[Operands];
#pragma unroll
  for (int k = 0; k < Operands; ++k) x[k] = load<N>(static_cast<const T*>(in.p[k]) + i);
  Pack<T, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (Operands == 1)
      result.v[j] = narrow<T>(f(wide(x[0].v[j])));
    else
      result.v[j] = narrow<T>(f(wide(x[0].v[j]), wide(x[1].v[j])));
  }
  store<N>(y + i, result);
}

template <int Operands, class T, class F>
void map(const device::Launch& launch, std::int64_t n, F f) {
  if (n == 0) return;
  Operand<Operands> in{};
  bool fits = aligned16(launch.outputs[0]) && n % kWidest<T> == 0;
  for (int k = 0; k < Operands; ++k) {
    in.p[k] = launch.inputs[static_cast<std::size_t>(k)];
    fits = fits && aligned16(in.p[k]);
  }
  constexpr int kThreads = 256;
  if (fits)
    map_kernel<Operands, kWidest<T>, T>
        <<<blocks(pieces(n / kWidest<T>, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.out<T>(0), in, n, f);
  else
    map_kernel<Operands, 1, T>
        <<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.out<T>(0), in, n, f);
  device::cuda::launched("map");
}

}  // namespace trireme::ops::cuda
