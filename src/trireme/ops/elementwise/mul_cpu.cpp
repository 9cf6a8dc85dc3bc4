#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_mul_cpu(const ir::KernelSpec& spec) {
  return broadcast_kernel(spec, [](simd::Vec a, simd::Vec b) { return a * b; });
}

std::shared_ptr<device::Kernel> prepare_scale_cpu(const ir::KernelSpec& spec) {
  const auto factor = static_cast<float>(spec.attributes.real("factor"));
  return map_kernel<1>(spec, [factor](simd::Vec x) { return x * simd::set(factor); });
}

}  // namespace trireme::ops
