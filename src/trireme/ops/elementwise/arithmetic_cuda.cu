#include "trireme/ops/cuda/common.h"
#include "trireme/ops/elementwise/cuda_kernels.h"

// add, add_n, accumulate, mul, scale.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Product {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};

// y[i] = f(a[i], b[i mod period]); N divides the period, or the period is 1.
template <int N, class T, class U, class F>
__global__ void broadcast_kernel(T* y, const T* a, const U* b, std::int64_t n, std::int64_t period, F f) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<T, N> x = load<N>(a + i);
  const std::int64_t at = period == n ? i : period == 1 ? 0 : i % period;
  float second[N];
  if (period == 1) {
#pragma unroll
    for (int j = 0; j < N; ++j) second[j] = wide(*b);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) second[j] = wide(b[at + j]);
  }
  Pack<T, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) result.v[j] = narrow<T>(f(wide(x.v[j]), second[j]));
  store<N>(y + i, result);
}

template <class F>
std::shared_ptr<device::Kernel> broadcast(const ir::KernelSpec& spec, F f) {
  const std::int64_t n = spec.inputs[0].elements();
  const std::int64_t period = spec.inputs[1].elements();
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_native(spec.inputs[1].dtype, [&]<class U>(U) -> std::shared_ptr<device::Kernel> {
      return make_kernel([n, period, f](const device::Launch& launch) {
        if (n == 0) return;
        if constexpr (std::is_same_v<T, U>)
          if (n == period) return map<2, T>(launch, n, f);
        const auto run = [&](auto kernel, int width) {
          kernel<<<blocks(pieces(n, std::int64_t{kThreads} * width)), kThreads, 0, stream_of(launch)>>>(
              launch.out<T>(0), launch.in<T>(0), launch.in<U>(1), n, period, f);
        };
        const bool fits = n % kWidest<T> == 0 && (period == 1 || period % kWidest<T> == 0) &&
                          aligned16(launch.inputs[0]) && aligned16(launch.outputs[0]);
        fits ? run(broadcast_kernel<kWidest<T>, T, U, F>, kWidest<T>) : run(broadcast_kernel<1, T, U, F>, 1);
        device::cuda::launched("broadcast");
      });
    });
  });
}

constexpr int kTogether = 64;
struct Terms {
  const void* p[kTogether];
  int count;
};

// y = first + terms, added in order.
template <class T>
__global__ void sum_kernel(T* y, const T* first, Terms terms, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = wide(first[i]);
  for (int t = 0; t < terms.count; ++t) sum += wide(static_cast<const T*>(terms.p[t])[i]);
  y[i] = narrow<T>(sum);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_add_cuda(const ir::KernelSpec& spec) { return broadcast(spec, Sum{}); }
std::shared_ptr<device::Kernel> prepare_mul_cuda(const ir::KernelSpec& spec) { return broadcast(spec, Product{}); }

std::shared_ptr<device::Kernel> prepare_scale_cuda(const ir::KernelSpec& spec) {
  const Scale f{static_cast<float>(spec.attributes.real("factor"))};
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([n = spec.outputs[0].elements(), f](const device::Launch& launch) { map<1, T>(launch, n, f); });
  });
}

std::shared_ptr<device::Kernel> prepare_add_n_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([n = spec.outputs[0].elements()](const device::Launch& launch) {
      if (n == 0) return;
      const T* first = launch.in<T>(0);
      std::size_t next = 1;
      do {
        Terms terms{};
        for (; next < launch.inputs.size() && terms.count < kTogether; ++next)
          terms.p[terms.count++] = launch.inputs[next];
        sum_kernel<T>
            <<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.out<T>(0), first, terms, n);
        first = launch.out<T>(0);
      } while (next < launch.inputs.size());
      device::cuda::launched("add_n");
    });
  });
}

}  // namespace trireme::ops
