#include <limits>

#include "trireme/ops/attention/softmax.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

// Calls row(offset of the row's first element) for each row.
template <class F>
void for_rows(const device::Launch& launch, std::int64_t rows, std::int64_t width, F&& row) {
  const std::int64_t block = std::max<std::int64_t>(1, simd::kBlock / std::max<std::int64_t>(1, width));
  launch.pool->ranges(rows, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r * width);
  });
}

template <class T>
void softmax_row(const T* x, T* y, std::int64_t n) {
  namespace hn = simd::hn;
  simd::Vec top = simd::set(-std::numeric_limits<float>::infinity());
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    top = hn::Max(top, simd::keep_n(simd::load_n(x + i, count), count, -std::numeric_limits<float>::infinity()));
  });
  top = simd::set(simd::max(top));
  simd::Vec sum = simd::zero();
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    sum = sum + simd::keep_n(simd::exp(simd::load_n(x + i, count) - top), count, 0);
  });
  const simd::Vec factor = simd::set(1.0F / simd::sum(sum));
  simd::map(
      n, y, [&](simd::Vec v) { return simd::exp(v - top) * factor; }, x);
}

template <class T>
void softmax_grad_row(const T* y, const T* dy, T* dx, std::int64_t n) {
  simd::Vec sum = simd::zero();
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    sum = simd::hn::MulAdd(simd::load_n(y + i, count), simd::load_n(dy + i, count), sum);
  });
  const simd::Vec mean = simd::set(simd::sum(sum));
  simd::map(
      n, dx, [&](simd::Vec p, simd::Vec d) { return p * (d - mean); }, y, dy);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_softmax_cpu(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / width;
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([rows, width](const device::Launch& launch) {
      for_rows(launch, rows, width,
               [&](std::int64_t at) { softmax_row(launch.in<T>(0) + at, launch.out<T>(0) + at, width); });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_softmax_grad_cpu(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / width;
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([rows, width](const device::Launch& launch) {
      for_rows(launch, rows, width, [&](std::int64_t at) {
        softmax_grad_row(launch.in<T>(0) + at, launch.in<T>(1) + at, launch.out<T>(0) + at, width);
      });
    });
  });
}

}  // namespace trireme::ops
