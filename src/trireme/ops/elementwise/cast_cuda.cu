#include "trireme/ops/cuda/common.h"
#include "trireme/ops/elementwise/cuda_kernels.h"

// cast and fill.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

template <class F>
decltype(auto) dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f(double{});
    case DType::i8: return f(std::int8_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::u16: return f(std::uint16_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    default: return dispatch_native(dtype, std::forward<F>(f));
  }
}

template <class T>
constexpr bool kHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  if constexpr (kHalf<From>)
    return convert<To>(wide(x));
  else if constexpr (kHalf<To>)
    return narrow<To>(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

template <int N, class To, class From>
__global__ void cast_kernel(To* y, const From* x, std::int64_t n) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<From, N> from = load<N>(x + i);
  Pack<To, N> to;
#pragma unroll
  for (int j = 0; j < N; ++j) to.v[j] = convert<To>(from.v[j]);
  store<N>(y + i, to);
}

template <class T>
__global__ void fill_kernel(T* y, std::int64_t n, T value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = value;
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_cast_cuda(const ir::KernelSpec& spec) {
  return dispatch_any(spec.inputs[0].dtype, [&]<class From>(From) {
    return dispatch_any(spec.outputs[0].dtype, [&]<class To>(To) -> std::shared_ptr<device::Kernel> {
      return make_kernel([n = spec.outputs[0].elements()](const device::Launch& launch) {
        if (n == 0) return;
        constexpr int kTogether = 4;
        const auto run = [&](auto kernel, int width) {
          kernel<<<blocks(pieces(n, std::int64_t{kThreads} * width)), kThreads, 0, stream_of(launch)>>>(
              launch.out<To>(0), launch.in<From>(0), n);
        };
        const auto fits = [](const void* p, std::size_t unit) {
          return reinterpret_cast<std::uintptr_t>(p) % (unit * kTogether) == 0;
        };
        if (n % kTogether == 0 && fits(launch.inputs[0], sizeof(From)) && fits(launch.outputs[0], sizeof(To)))
          run(cast_kernel<kTogether, To, From>, kTogether);
        else
          run(cast_kernel<1, To, From>, 1);
        device::cuda::launched("cast");
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_fill_cuda(const ir::KernelSpec& spec) {
  const double value = spec.attributes.real("value");
  return dispatch_any(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    T element;
    if constexpr (kHalf<T>)
      element = T(static_cast<float>(value));
    else
      element = static_cast<T>(value);
    return make_kernel([n = spec.outputs[0].elements(), element](const device::Launch& launch) {
      if (n == 0) return;
      fill_kernel<T><<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.out<T>(0), n, element);
      device::cuda::launched("fill");
    });
  });
}

}  // namespace trireme::ops
