#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

namespace hn = simd::hn;

std::shared_ptr<device::Kernel> prepare_relu_cpu(const ir::KernelSpec& spec) {
  // Not Max: the instruction would turn NaN into 0.
  return map_kernel<1>(spec, [](simd::Vec x) { return hn::IfThenZeroElse(hn::Lt(x, simd::zero()), x); });
}

std::shared_ptr<device::Kernel> prepare_relu_grad_cpu(const ir::KernelSpec& spec) {
  return map_kernel<2>(spec, [](simd::Vec y, simd::Vec dy) { return hn::IfThenElseZero(hn::Gt(y, simd::zero()), dy); });
}

}  // namespace trireme::ops
