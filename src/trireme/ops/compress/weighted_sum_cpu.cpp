#include "trireme/ops/compress/weighted_sum.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_weighted_sum_cpu(const ir::KernelSpec& spec) {
  const auto a_weight = static_cast<float>(spec.attributes.real("a_weight"));
  const double b_weight = spec.attributes.real("b_weight");
  return dispatch_compute(spec.inputs[1].dtype, [&]<class T>(T) {
    return make_kernel([=, n = spec.outputs[0].elements()](const device::Launch& launch) {
      double weight = b_weight;
      if (launch.inputs[2] != nullptr) weight *= static_cast<double>(*launch.in<float>(2));
      if (launch.inputs[3] != nullptr) weight /= static_cast<double>(*launch.in<float>(3));
      const simd::Vec wb = simd::set(static_cast<float>(weight));
      const simd::Vec wa = simd::set(a_weight);
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        float* y = launch.out<float>(0) + begin;
        const T* b = launch.in<T>(1) + begin;
        if (launch.inputs[0] == nullptr)
          simd::map(
              end - begin, y, [&](simd::Vec vb) { return wb * vb; }, b);
        else
          simd::map(
              end - begin, y, [&](simd::Vec va, simd::Vec vb) { return simd::hn::MulAdd(wa, va, wb * vb); },
              launch.in<float>(0) + begin, b);
      });
    });
  });
}

}  // namespace trireme::ops
