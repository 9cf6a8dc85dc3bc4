#include "trireme/ops/cuda/activation.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/elementwise/cuda_kernels.h"

// relu, gelu, silu, swiglu and their gradients.
namespace trireme::ops {
namespace {

using namespace cuda;

template <class A>
struct Value {
  __device__ float operator()(float x) const { return A::value(x); }
};
template <class A>
struct Gradient {
  __device__ float operator()(float x, float dy) const { return dy * A::derivative(x); }
};
template <class S>
struct Swiglu {
  __device__ float operator()(float gate, float up) const { return S::value(gate) * up; }
};

// For results in 16 bits `quick` is good enough.
template <int Operands, class F, class Quick>
std::shared_ptr<device::Kernel> mapped(const ir::KernelSpec& spec, F f, Quick quick) {
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    const auto kernel = [n = spec.outputs[0].elements()](auto function) {
      return make_kernel([n, function](const device::Launch& launch) { map<Operands, T>(launch, n, function); });
    };
    if constexpr (sizeof(T) == 2)
      return kernel(quick);
    else
      return kernel(f);
  });
}
template <int Operands, class F>
std::shared_ptr<device::Kernel> mapped(const ir::KernelSpec& spec, F f) {
  return mapped<Operands>(spec, f, f);
}

// Each thread reads its elements of all operands before it writes: the results may be in place of any.
template <int N, class T>
__global__ void swiglu_grad_kernel(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<T, N> g = load<N>(gate + i), u = load<N>(up + i), d = load<N>(dy + i);
  using S = SiluOf<sizeof(T) == 2>;
  Pack<T, N> dg, du;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    dg.v[j] = narrow<T>(wide(d.v[j]) * wide(u.v[j]) * S::derivative(wide(g.v[j])));
    du.v[j] = narrow<T>(wide(d.v[j]) * S::value(wide(g.v[j])));
  }
  store<N>(dgate + i, dg);
  store<N>(dup + i, du);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_relu_cuda(const ir::KernelSpec& spec) { return mapped<1>(spec, Value<Relu>{}); }
std::shared_ptr<device::Kernel> prepare_relu_grad_cuda(const ir::KernelSpec& spec) {
  return mapped<2>(spec, Gradient<Relu>{});
}
std::shared_ptr<device::Kernel> prepare_gelu_cuda(const ir::KernelSpec& spec) {
  return spec.attributes.boolean("tanh") ? mapped<1>(spec, Value<GeluTanh>{}, Value<GeluTanhOf<true>>{})
                                         : mapped<1>(spec, Value<Gelu>{});
}
std::shared_ptr<device::Kernel> prepare_gelu_grad_cuda(const ir::KernelSpec& spec) {
  return spec.attributes.boolean("tanh") ? mapped<2>(spec, Gradient<GeluTanh>{}, Gradient<GeluTanhOf<true>>{})
                                         : mapped<2>(spec, Gradient<Gelu>{});
}
std::shared_ptr<device::Kernel> prepare_silu_cuda(const ir::KernelSpec& spec) {
  return mapped<1>(spec, Value<Silu>{}, Value<SiluOf<true>>{});
}
std::shared_ptr<device::Kernel> prepare_silu_grad_cuda(const ir::KernelSpec& spec) {
  return mapped<2>(spec, Gradient<Silu>{}, Gradient<SiluOf<true>>{});
}
std::shared_ptr<device::Kernel> prepare_swiglu_cuda(const ir::KernelSpec& spec) {
  return mapped<2>(spec, Swiglu<Silu>{}, Swiglu<SiluOf<true>>{});
}

std::shared_ptr<device::Kernel> prepare_swiglu_grad_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([n = spec.outputs[0].elements()](const device::Launch& launch) {
      if (n == 0) return;
      constexpr int kThreads = 256;
      bool fits = n % kWidest<T> == 0;
      for (const void* p : launch.inputs) fits = fits && aligned16(p);
      for (const void* p : launch.outputs) fits = fits && aligned16(p);
      const auto run = [&](auto kernel, int width) {
        kernel<<<blocks(pieces(n, std::int64_t{kThreads} * width)), kThreads, 0, stream_of(launch)>>>(
            launch.in<T>(0), launch.in<T>(1), launch.in<T>(2), launch.out<T>(0), launch.out<T>(1), n);
      };
      fits ? run(swiglu_grad_kernel<kWidest<T>, T>, kWidest<T>) : run(swiglu_grad_kernel<1, T>, 1);
      device::cuda::launched("swiglu_grad");
    });
  });
}

}  // namespace trireme::ops
