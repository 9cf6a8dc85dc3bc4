#include "trireme/ops/loss/loss_cpu.h"
#include "trireme/ops/loss/regression.h"

namespace trireme::ops {
namespace {

namespace hn = simd::hn;

// The elements are seen as rows of this length, the last one short.
constexpr std::int64_t kRow = 1024;

LossChunks chunks_of(const ir::KernelSpec& spec) { return {(spec.inputs[0].elements() + kRow - 1) / kRow, kRow}; }

// loss = scale · Σ error(pred − target)
template <class F>
std::shared_ptr<device::Kernel> loss_kernel(const ir::KernelSpec& spec, F error) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([chunks = chunks_of(spec), n = spec.inputs[0].elements(), scale = spec.attributes.real("scale"),
                        error](const device::Launch& launch) {
      chunks.sum(launch, scale, launch.out<float>(0), [&](std::int64_t row) {
        const std::int64_t at = row * kRow;
        const T *pred = launch.in<T>(0) + at, *target = launch.in<T>(1) + at;
        simd::Vec sum = simd::zero();
        simd::for_vectors(std::min(kRow, n - at), [&](std::int64_t i, std::int64_t count) {
          sum = sum + error(simd::load_n(pred + i, count) - simd::load_n(target + i, count));
        });
        return static_cast<double>(simd::sum(sum));
      });
    });
  });
}

// dpred = dloss · scale · slope(pred − target)
template <class F>
std::shared_ptr<device::Kernel> grad_kernel(const ir::KernelSpec& spec, F slope) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel(
        [n = spec.inputs[0].elements(), scale = spec.attributes.real("scale"), slope](const device::Launch& launch) {
          const simd::Vec factor = simd::set(static_cast<float>(scale * static_cast<double>(*launch.in<float>(2))));
          launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
            simd::map(
                end - begin, launch.out<T>(0) + begin,
                [&](simd::Vec pred, simd::Vec target) { return factor * slope(pred - target); },
                launch.in<T>(0) + begin, launch.in<T>(1) + begin);
          });
        });
  });
}

}  // namespace

std::size_t regression_workspace_cpu(const ir::KernelSpec& spec) { return chunks_of(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_mean_absolute_error_cpu(const ir::KernelSpec& spec) {
  return loss_kernel(spec, [](simd::Vec error) { return hn::Abs(error); });
}

std::shared_ptr<device::Kernel> prepare_mean_absolute_error_grad_cpu(const ir::KernelSpec& spec) {
  // Equal values pull nowhere; NaN stays NaN.
  return grad_kernel(spec, [](simd::Vec error) {
    const simd::Vec sign = hn::CopySign(simd::set(1.0F), error);
    return hn::IfThenElse(hn::Eq(hn::Abs(error), simd::zero()), simd::zero(),
                          hn::IfThenElse(hn::IsNaN(error), error, sign));
  });
}

std::shared_ptr<device::Kernel> prepare_squared_error_cpu(const ir::KernelSpec& spec) {
  return loss_kernel(spec, [](simd::Vec error) { return error * error; });
}

std::shared_ptr<device::Kernel> prepare_squared_error_grad_cpu(const ir::KernelSpec& spec) {
  return grad_kernel(spec, [](simd::Vec error) { return error + error; });
}

}  // namespace trireme::ops
