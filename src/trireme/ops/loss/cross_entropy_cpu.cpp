#include "trireme/ops/loss/cross_entropy.h"
#include "trireme/ops/loss/loss_cpu.h"

namespace trireme::ops {
namespace {

LossChunks chunks_of(const ir::KernelSpec& spec) { return {spec.inputs[1].elements(), spec.inputs[0].shape.back()}; }

}  // namespace

std::size_t cross_entropy_workspace_cpu(const ir::KernelSpec& spec) { return chunks_of(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_cross_entropy_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([chunks = chunks_of(spec), vocab = spec.inputs[0].shape.back(),
                        scale = spec.attributes.real("scale")](const device::Launch& launch) {
      const T* logits = launch.in<T>(0);
      const auto* targets = launch.in<std::int32_t>(1);
      float* lse = launch.out<float>(1);
      chunks.sum(launch, scale, launch.out<float>(0), [&](std::int64_t row) {
        const T* x = logits + row * vocab;
        const double log_sum = exp_sum(x, vocab).log_sum(1);
        lse[row] = static_cast<float>(log_sum);
        if (!counts(targets[row], vocab, row)) return 0.0;
        return log_sum - static_cast<double>(static_cast<float>(x[targets[row]]));
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_cross_entropy_grad_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([chunks = chunks_of(spec), vocab = spec.inputs[0].shape.back(),
                        scale = spec.attributes.real("scale")](const device::Launch& launch) {
      const auto* targets = launch.in<std::int32_t>(1);
      const auto* lse = launch.in<float>(2);
      const auto factor = static_cast<float>(scale * static_cast<double>(*launch.in<float>(3)));
      chunks.each(launch, [&](std::int64_t row) {
        const T* x = launch.in<T>(0) + row * vocab;
        T* dx = launch.out<T>(0) + row * vocab;
        if (!counts(targets[row], vocab, row)) {
          std::fill_n(dx, vocab, T(0.0F));
          return;
        }
        // The target's element is made apart, in case the result overwrites the logits.
        const float at_target = std::exp(static_cast<float>(x[targets[row]]) - lse[row]) - 1.0F;
        const simd::Vec log_sum = simd::set(lse[row]), weight = simd::set(factor);
        simd::map(
            vocab, dx, [&](simd::Vec v) { return simd::exp(v - log_sum) * weight; }, x);
        dx[targets[row]] = T(factor * at_target);
      });
    });
  });
}

}  // namespace trireme::ops
