#include <cmath>
#include <cstring>

#include "trireme/ops/optimizer/cpu_kernels.h"
#include "trireme/ops/optimizer/optimizer.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

namespace hn = simd::hn;

// The factors of one launch, folded so that the loop has one division and one square root per element.
struct Coefficients {
  float clip, keep_m, take_m, keep_v, take_v, decay, rate, root, eps;
};

template <class T>
void copy_block(T* to, const T* from, std::int64_t n) {
  if (to != from) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_adamw_cpu(const ir::KernelSpec& spec) {
  const ir::Attributes& a = spec.attributes;
  const double beta1 = a.real("beta1");
  const double beta2 = a.real("beta2");
  const double eps = a.real("eps");
  const double weight_decay = a.real("weight_decay");
  return dispatch_update(spec, [&]<class G, class L, class HasLow>(G, L, HasLow) {
    return make_kernel([=, n = spec.inputs[0].elements()](const device::Launch& launch) {
      const double lr = *launch.in<float>(4);
      const double step = *launch.in<float>(5);
      const bool finite = *launch.in<float>(7) != 0;
      const Coefficients c = {.clip = *launch.in<float>(6),
                              .keep_m = static_cast<float>(beta1),
                              .take_m = static_cast<float>(1 - beta1),
                              .keep_v = static_cast<float>(beta2),
                              .take_v = static_cast<float>(1 - beta2),
                              .decay = static_cast<float>(1 - lr * weight_decay),
                              .rate = static_cast<float>(lr / (1 - std::pow(beta1, step))),
                              .root = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, step))),
                              .eps = static_cast<float>(eps)};
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t count = end - begin;
        const float* p = launch.in<float>(0) + begin;
        const G* g = launch.in<G>(1) + begin;
        const float* m = launch.in<float>(2) + begin;
        const float* v = launch.in<float>(3) + begin;
        const float* keep = launch.inputs[8] == nullptr ? nullptr : launch.in<float>(8) + begin;
        float* new_p = launch.out<float>(0) + begin;
        float* new_m = launch.out<float>(1) + begin;
        float* new_v = launch.out<float>(2) + begin;
        L* low = nullptr;
        if constexpr (HasLow::value) low = launch.out<L>(3) + begin;
        if (!finite && keep != nullptr) {
          const auto masked = [](simd::Vec x, simd::Vec k) { return x * k; };
          simd::map(count, new_p, masked, p, keep);
          simd::map(count, new_m, masked, m, keep);
          simd::map(count, new_v, masked, v, keep);
          if constexpr (HasLow::value)
            simd::map(
                count, low, [](simd::Vec x) { return x; }, new_p);
          return;
        }
        if (!finite) {
          copy_block(new_p, p, count);
          copy_block(new_m, m, count);
          copy_block(new_v, v, count);
          if constexpr (HasLow::value)
            simd::map(
                count, low, [](simd::Vec x) { return x; }, p);
          return;
        }
        simd::for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
          const simd::Vec grad = simd::load_n(g + i, lanes) * simd::set(c.clip);
          simd::Vec m1 = hn::MulAdd(simd::set(c.take_m), grad, simd::set(c.keep_m) * simd::load_n(m + i, lanes));
          simd::Vec v1 = hn::MulAdd(simd::set(c.take_v) * grad, grad, simd::set(c.keep_v) * simd::load_n(v + i, lanes));
          const simd::Vec root = hn::MulAdd(hn::Sqrt(v1), simd::set(c.root), simd::set(c.eps));
          const simd::Vec kept = simd::load_n(p + i, lanes) * simd::set(c.decay);
          simd::Vec p1 = hn::NegMulAdd(simd::set(c.rate), m1 / root, kept);
          if (keep != nullptr) {
            const simd::Vec k = simd::load_n(keep + i, lanes);
            p1 = p1 * k;
            m1 = m1 * k;
            v1 = v1 * k;
          }
          simd::store_n(p1, new_p + i, lanes);
          simd::store_n(m1, new_m + i, lanes);
          simd::store_n(v1, new_v + i, lanes);
          if constexpr (HasLow::value) simd::store_n(p1, low + i, lanes);
        });
      });
    });
  });
}

}  // namespace trireme::ops
