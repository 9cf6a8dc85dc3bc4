#include "trireme/ops/loss/kl_divergence.h"
#include "trireme/ops/loss/loss_cpu.h"

namespace trireme::ops {
namespace {

LossChunks chunks_of(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back();
  return {spec.inputs[0].elements() / width, width};
}

float inverse_temperature(const ir::KernelSpec& spec) {
  return static_cast<float>(1 / spec.attributes.real("temperature"));
}

// Σ p · (teacher − student) over a row, both already divided by the temperature, minus the difference of their log
// sums.
template <class T>
double divergence(const T* student, const T* teacher, std::int64_t n, float factor) {
  const ExpSum q = exp_sum(student, n, factor), p = exp_sum(teacher, n, factor);
  const simd::Vec scale = simd::set(factor), top = simd::set(p.maximum);
  constexpr std::int64_t kRun = 64 * simd::kLanes;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kRun) {
    simd::Vec sum = simd::zero();
    simd::for_vectors(std::min(kRun, n - begin), [&](std::int64_t i, std::int64_t count) {
      const simd::Vec t = simd::load_n(teacher + begin + i, count), s = simd::load_n(student + begin + i, count);
      sum = simd::hn::MulAdd(simd::exp(scale * (t - top)), scale * (t - s), sum);
    });
    total += static_cast<double>(simd::sum(sum));
  }
  return total / p.sum - (p.log_sum(factor) - q.log_sum(factor));
}

}  // namespace

std::size_t kl_divergence_workspace_cpu(const ir::KernelSpec& spec) { return chunks_of(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_kl_divergence_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([chunks = chunks_of(spec), n = spec.inputs[0].shape.back(), factor = inverse_temperature(spec),
                        scale = spec.attributes.real("scale")](const device::Launch& launch) {
      chunks.sum(launch, scale, launch.out<float>(0), [&](std::int64_t row) {
        return divergence(launch.in<T>(0) + row * n, launch.in<T>(1) + row * n, n, factor);
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_kl_divergence_grad_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([chunks = chunks_of(spec), n = spec.inputs[0].shape.back(), factor = inverse_temperature(spec),
                        scale = spec.attributes.real("scale")](const device::Launch& launch) {
      const double weight = scale * static_cast<double>(factor) * static_cast<double>(*launch.in<float>(2));
      chunks.each(launch, [&](std::int64_t row) {
        const T *student = launch.in<T>(0) + row * n, *teacher = launch.in<T>(1) + row * n;
        const ExpSum q = exp_sum(student, n, factor), p = exp_sum(teacher, n, factor);
        const simd::Vec q_weight = simd::set(static_cast<float>(weight / q.sum)), q_top = simd::set(q.maximum);
        const simd::Vec p_weight = simd::set(static_cast<float>(weight / p.sum)), p_top = simd::set(p.maximum);
        const simd::Vec inverse = simd::set(factor);
        simd::map(
            n, launch.out<T>(0) + row * n,
            [&](simd::Vec s, simd::Vec t) {
              return simd::exp(inverse * (s - q_top)) * q_weight - simd::exp(inverse * (t - p_top)) * p_weight;
            },
            student, teacher);
      });
    });
  });
}

}  // namespace trireme::ops
