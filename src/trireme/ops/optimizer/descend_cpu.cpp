#include <cmath>
#include <cstring>

#include "trireme/ops/optimizer/descend.h"
#include "trireme/ops/optimizer/optimizer.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_descend_cpu(const ir::KernelSpec& spec) {
  namespace hn = simd::hn;
  const ir::Attributes& a = spec.attributes;
  const double beta1 = a.real("beta1");
  const double weight_decay = a.real("weight_decay");
  const auto root_scale = static_cast<float>(std::sqrt(a.real("variance_scale")));
  const auto eps = static_cast<float>(a.real("eps"));
  return dispatch_update(spec, [&]<class D, class L, class HasLow>(D, L, HasLow) {
    return make_kernel([=, n = spec.inputs[0].elements()](const device::Launch& launch) {
      const double lr = *launch.in<float>(3);
      const double first = launch.inputs[4] == nullptr ? 1.0 : 1 - std::pow(beta1, *launch.in<float>(4));
      const bool finite = *launch.in<float>(5) != 0;
      const simd::Vec rate = simd::set(static_cast<float>(lr / first));
      const simd::Vec decay = simd::set(static_cast<float>(1 - lr * weight_decay));
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        const float* p = launch.in<float>(0) + begin;
        const D* d = launch.in<D>(1) + begin;
        const float* v = launch.inputs[2] == nullptr ? nullptr : launch.in<float>(2) + begin;
        const float* keep = launch.inputs[6] == nullptr ? nullptr : launch.in<float>(6) + begin;
        float* fresh = launch.out<float>(0) + begin;
        if (finite)
          simd::for_vectors(end - begin, [&](std::int64_t i, std::int64_t lanes) {
            simd::Vec along = simd::load_n(d + i, lanes);
            if (v != nullptr)
              along = along / hn::MulAdd(hn::Sqrt(simd::load_n(v + i, lanes)), simd::set(root_scale), simd::set(eps));
            simd::Vec next = hn::NegMulAdd(rate, along, simd::load_n(p + i, lanes) * decay);
            if (keep != nullptr) next = next * simd::load_n(keep + i, lanes);
            simd::store_n(next, fresh + i, lanes);
          });
        else if (keep != nullptr)
          simd::map(
              end - begin, fresh, [](simd::Vec x, simd::Vec k) { return x * k; }, p, keep);
        else if (fresh != p)
          std::memcpy(fresh, p, static_cast<std::size_t>(end - begin) * sizeof(float));
        if constexpr (HasLow::value)
          simd::map(
              end - begin, launch.out<L>(1) + begin, [](simd::Vec x) { return x; }, static_cast<const float*>(fresh));
      });
    });
  });
}

}  // namespace trireme::ops
