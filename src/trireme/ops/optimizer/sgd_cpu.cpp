#include <cstring>

#include "trireme/ops/optimizer/cpu_kernels.h"
#include "trireme/ops/optimizer/optimizer.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_sgd_cpu(const ir::KernelSpec& spec) {
  namespace hn = simd::hn;
  const auto mu = static_cast<float>(spec.attributes.real("momentum"));
  const double weight_decay = spec.attributes.real("weight_decay");
  return dispatch_update(spec, [&]<class G, class L, class HasLow>(G, L, HasLow) {
    return make_kernel([=, n = spec.inputs[0].elements()](const device::Launch& launch) {
      const float lr = *launch.in<float>(3);
      const float clip = *launch.in<float>(4);
      const bool finite = *launch.in<float>(5) != 0;
      const auto decay = static_cast<float>(1 - static_cast<double>(lr) * weight_decay);
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t count = end - begin;
        const float* p = launch.in<float>(0) + begin;
        const G* g = launch.in<G>(1) + begin;
        const float* m = launch.in<float>(2) + begin;
        const float* keep = launch.inputs[6] == nullptr ? nullptr : launch.in<float>(6) + begin;
        float* new_p = launch.out<float>(0) + begin;
        float* new_m = launch.out<float>(1) + begin;
        L* low = nullptr;
        if constexpr (HasLow::value) low = launch.out<L>(2) + begin;
        if (!finite && keep != nullptr) {
          const auto masked = [](simd::Vec x, simd::Vec k) { return x * k; };
          simd::map(count, new_p, masked, p, keep);
          simd::map(count, new_m, masked, m, keep);
          if constexpr (HasLow::value)
            simd::map(
                count, low, [](simd::Vec x) { return x; }, new_p);
          return;
        }
        if (!finite) {
          const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
          if (new_p != p) std::memcpy(new_p, p, bytes);
          if (new_m != m) std::memcpy(new_m, m, bytes);
          if constexpr (HasLow::value)
            simd::map(
                count, low, [](simd::Vec x) { return x; }, p);
          return;
        }
        simd::for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
          const simd::Vec grad = simd::load_n(g + i, lanes) * simd::set(clip);
          simd::Vec m1 = hn::MulAdd(simd::set(mu), simd::load_n(m + i, lanes), grad);
          simd::Vec p1 = hn::NegMulAdd(simd::set(lr), m1, simd::load_n(p + i, lanes) * simd::set(decay));
          if (keep != nullptr) {
            const simd::Vec k = simd::load_n(keep + i, lanes);
            p1 = p1 * k;
            m1 = m1 * k;
          }
          simd::store_n(p1, new_p + i, lanes);
          simd::store_n(m1, new_m + i, lanes);
          if constexpr (HasLow::value) simd::store_n(p1, low + i, lanes);
        });
      });
    });
  });
}

}  // namespace trireme::ops
