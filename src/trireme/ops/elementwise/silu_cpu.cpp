#include "trireme/ops/activation.h"
#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

using simd::Vec;

std::shared_ptr<device::Kernel> prepare_silu_cpu(const ir::KernelSpec& spec) {
  return map_kernel<1>(spec, [](Vec x) { return Silu::value(x); });
}

std::shared_ptr<device::Kernel> prepare_silu_grad_cpu(const ir::KernelSpec& spec) {
  return map_kernel<2>(spec, [](Vec x, Vec dy) { return dy * Silu::derivative(x); });
}

std::shared_ptr<device::Kernel> prepare_swiglu_cpu(const ir::KernelSpec& spec) {
  return map_kernel<2>(spec, [](Vec gate, Vec up) { return Silu::value(gate) * up; });
}

std::shared_ptr<device::Kernel> prepare_swiglu_grad_cpu(const ir::KernelSpec& spec) {
  namespace hn = simd::hn;
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([n = spec.inputs[0].elements()](const device::Launch& launch) {
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        const T* gates = launch.in<T>(0) + begin;
        const T* ups = launch.in<T>(1) + begin;
        const T* dys = launch.in<T>(2) + begin;
        T* dgate = launch.out<T>(0) + begin;
        T* dup = launch.out<T>(1) + begin;
        simd::for_vectors(end - begin, [&](std::int64_t i, std::int64_t lanes) {
          const Vec gate = simd::load_n(gates + i, lanes);
          const Vec up = simd::load_n(ups + i, lanes);
          const Vec dy = simd::load_n(dys + i, lanes);
          const Vec s = simd::sigmoid(gate);
          const Vec value = gate * s;
          simd::store_n(dy * up * hn::MulAdd(value, simd::set(1.0F) - s, s), dgate + i, lanes);
          simd::store_n(dy * value, dup + i, lanes);
        });
      });
    });
  });
}

}  // namespace trireme::ops
