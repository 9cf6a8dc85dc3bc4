#include "trireme/ops/activation.h"
#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_relu_cpu(const ir::KernelSpec& spec) {
  return map_kernel<1>(spec, [](simd::Vec x) { return Relu::value(x); });
}

std::shared_ptr<device::Kernel> prepare_relu_grad_cpu(const ir::KernelSpec& spec) {
  // A selection, not a product: what is cut off stays 0 even where dy is infinite.
  return map_kernel<2>(
      spec, [](simd::Vec y, simd::Vec dy) { return simd::hn::IfThenElseZero(simd::hn::Gt(y, simd::zero()), dy); });
}

}  // namespace trireme::ops
