#include <algorithm>
#include <cmath>

#include "trireme/ops/define.h"
#include "trireme/ops/optimizer/clip.h"
#include "trireme/ops/optimizer/cpu_kernels.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

constexpr std::int64_t kChunk = kSumChunk;

std::int64_t chunks_of(const ir::KernelSpec& spec) { return (spec.inputs[0].elements() + kChunk - 1) / kChunk; }

// Squares are taken in f64 too: those of large f32 values overflow f32.
template <class T>
double sum_of_squares(const T* x, std::int64_t n) {
  namespace hn = simd::hn;
  constexpr hn::RepartitionToWide<simd::Tag> wide;
  constexpr hn::Half<simd::Tag> half;
  auto low = hn::Zero(wide);
  auto high = hn::Zero(wide);
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t lanes) {
    const simd::Vec v = simd::load_n(x + i, lanes);
    const auto a = hn::PromoteTo(wide, hn::LowerHalf(half, v));
    const auto b = hn::PromoteTo(wide, hn::UpperHalf(half, v));
    low = hn::MulAdd(a, a, low);
    high = hn::MulAdd(b, b, high);
  });
  return hn::GetLane(hn::SumOfLanes(wide, low + high));
}

}  // namespace

std::size_t sum_squares_workspace(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(chunks_of(spec)) * sizeof(double);
}

std::shared_ptr<device::Kernel> prepare_sum_squares_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    const bool part = spec.outputs[0].dtype == DType::f64;
    const bool more = spec.inputs.size() > 1 && spec.inputs[1].present;
    return make_kernel([=, n = spec.inputs[0].elements(), chunks = chunks_of(spec)](const device::Launch& launch) {
      auto* partial = static_cast<double*>(launch.workspace);
      launch.pool->run(chunks, [&](std::int64_t c) {
        partial[c] = sum_of_squares(launch.in<T>(0) + c * kChunk, std::min(kChunk, n - c * kChunk));
      });
      double total = more ? *launch.in<double>(1) : 0;
      for (std::int64_t c = 0; c < chunks; ++c) total += partial[c];
      if (part)
        *launch.out<double>(0) = total;
      else
        *launch.out<float>(0) = static_cast<float>(total);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_clip_scale_cpu(const ir::KernelSpec& spec) {
  return make_kernel([max_norm = spec.attributes.real("max_norm")](const device::Launch& launch) {
    const double total = *launch.in<float>(0);
    const double unit = launch.inputs[2] != nullptr ? *launch.in<float>(2) : 1.0;
    const double norm = std::sqrt(total) / unit;
    const bool finite = std::isfinite(total) && std::isfinite(*launch.in<float>(1));
    const double factor = (max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0) / unit;
    *launch.out<float>(0) = static_cast<float>(norm);
    *launch.out<float>(1) = finite ? static_cast<float>(factor) : 0.0F;
    *launch.out<float>(2) = finite ? 1.0F : 0.0F;
  });
}

}  // namespace trireme::ops
