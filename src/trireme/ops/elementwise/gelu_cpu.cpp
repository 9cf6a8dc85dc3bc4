#include "trireme/ops/activation.h"
#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {
namespace {

template <class F>
std::shared_ptr<device::Kernel> with_variant(const ir::KernelSpec& spec, F&& f) {
  return spec.attributes.boolean("tanh") ? f(GeluTanh{}) : f(Gelu{});
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_gelu_cpu(const ir::KernelSpec& spec) {
  return with_variant(spec, [&]<class A>(A) { return map_kernel<1>(spec, [](simd::Vec x) { return A::value(x); }); });
}

std::shared_ptr<device::Kernel> prepare_gelu_grad_cpu(const ir::KernelSpec& spec) {
  return with_variant(spec, [&]<class A>(A) {
    return map_kernel<2>(spec, [](simd::Vec x, simd::Vec dy) { return dy * A::derivative(x); });
  });
}

}  // namespace trireme::ops
