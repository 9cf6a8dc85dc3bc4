#include <cmath>

#include "trireme/ops/norm/cpu_kernels.h"
#include "trireme/ops/norm/row_norm.h"
#include "trireme/ops/simd.h"

// The kernels of layer_norm and rms_norm. A row is read from memory once and stays in the first caches for the passes
// over it; statistics take two passes, so that a large mean does not cost digits.
namespace trireme::ops {
namespace {

namespace hn = simd::hn;
using simd::Vec;

// Sum of f(i, lanes) over a row, in four chains to hide the latency of the addition.
template <class F>
HWY_INLINE float row_sum(std::int64_t n, F&& f) {
  constexpr std::int64_t step = simd::kLanes;
  Vec a = simd::zero();
  Vec b = simd::zero();
  Vec c = simd::zero();
  Vec d = simd::zero();
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = a + f(i, step);
    b = b + f(i + step, step);
    c = c + f(i + 2 * step, step);
    d = d + f(i + 3 * step, step);
  }
  for (; i + step <= n; i += step) a = a + f(i, step);
  if (i < n) b = b + f(i, n - i);
  return simd::sum((a + b) + (c + d));
}

template <class T>
struct Forward {
  const T* x;
  const T* residual;
  const float* weight;
  const float* bias;
  T* y;
  float* mean;
  float* rstd;
  T* sum;
  std::int64_t width;
  double eps;
};

template <bool Centered, class T>
void forward_row(const Forward<T>& f, std::int64_t row) {
  const std::int64_t n = f.width;
  const T* s = f.x + row * n;
  if (f.residual != nullptr) {
    T* sum = f.sum + row * n;
    simd::map(
        n, sum, [](Vec a, Vec b) { return a + b; }, s, f.residual + row * n);
    s = sum;
  }
  const auto inverse = 1.0F / static_cast<float>(n);
  float mean = 0;
  if constexpr (Centered) {
    mean = row_sum(n, [&](std::int64_t i, std::int64_t lanes) { return simd::load_n(s + i, lanes); }) * inverse;
    f.mean[row] = mean;
  }
  const Vec center = simd::set(mean);
  const float squares = row_sum(n, [&](std::int64_t i, std::int64_t lanes) {
    Vec d = simd::load_n(s + i, lanes);
    if constexpr (Centered) d = lanes == simd::kLanes ? d - center : simd::keep_n(d - center, lanes, 0);
    return d * d;
  });
  const auto rstd = static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares * inverse) + f.eps));
  f.rstd[row] = rstd;
  const Vec factor = simd::set(rstd);
  T* y = f.y + row * n;
  if (f.bias != nullptr)
    simd::map(
        n, y, [&](Vec v, Vec w, Vec b) { return hn::MulAdd((v - center) * factor, w, b); }, s, f.weight, f.bias);
  else
    simd::map(
        n, y, [&](Vec v, Vec w) { return (v - center) * factor * w; }, s, f.weight);
}

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_forward(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back();
  const std::int64_t rows = width == 0 ? 0 : spec.inputs[0].elements() / width;
  const double eps = spec.attributes.real("eps");
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([rows, width, eps](const device::Launch& launch) {
      constexpr std::size_t residual = Centered ? 3 : 2;
      Forward<T> f{};
      f.x = launch.in<T>(0);
      f.weight = launch.in<float>(1);
      f.bias = Centered ? launch.in<float>(2) : nullptr;
      f.residual = launch.in<T>(residual);
      f.y = launch.out<T>(0);
      f.mean = Centered ? launch.out<float>(1) : nullptr;
      f.rstd = launch.out<float>(Centered ? 2 : 1);
      f.sum = f.residual != nullptr ? launch.out<T>(residual) : nullptr;
      f.width = width;
      f.eps = eps;
      launch.pool->ranges(rows, std::max<std::int64_t>(1, simd::kBlock / std::max<std::int64_t>(1, width)),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t row = begin; row < end; ++row) forward_row<Centered>(f, row);
                          });
    });
  });
}

template <class T>
struct Backward {
  const T* s;
  const float* weight;
  const float* mean;
  const float* rstd;
  const T* dy;
  const T* dsum;
  T* dx;
  std::int64_t width;
};

// One row: dx, and its share of the gradients of weight and bias, and of the sum of dx, added to `dweight`, `dbias` and
// `total` (null: not wanted).
template <bool Centered, class T>
void backward_row(const Backward<T>& b, std::int64_t row, float* dweight, float* dbias, float* total) {
  const std::int64_t n = b.width;
  const T* s = b.s + row * n;
  const T* dy = b.dy + row * n;
  const Vec center = simd::set(Centered ? b.mean[row] : 0.0F);
  const Vec rstd = simd::set(b.rstd[row]);
  Vec sum_g = simd::zero();
  Vec sum_gx = simd::zero();
  // Lanes past the row's end have dy = 0 and weight = 0 and add nothing.
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t lanes) {
    const Vec d = simd::load_n(dy + i, lanes);
    const Vec normal = (simd::load_n(s + i, lanes) - center) * rstd;
    const Vec g = d * simd::load_n(b.weight + i, lanes);
    if constexpr (Centered) sum_g = sum_g + g;
    sum_gx = hn::MulAdd(g, normal, sum_gx);
    simd::store_n(hn::MulAdd(d, normal, simd::load_n(dweight + i, lanes)), dweight + i, lanes);
    if (Centered && dbias != nullptr) simd::store_n(simd::load_n(dbias + i, lanes) + d, dbias + i, lanes);
  });
  const auto inverse = 1.0F / static_cast<float>(n);
  const Vec mean_g = simd::set(Centered ? simd::sum(sum_g) * inverse : 0.0F);
  const Vec mean_gx = simd::set(simd::sum(sum_gx) * inverse);
  const auto gradient = [&](Vec v, Vec d, Vec w) {
    const Vec normal = (v - center) * rstd;
    return hn::NegMulAdd(normal, mean_gx, hn::MulSub(d, w, mean_g)) * rstd;
  };
  T* dx = b.dx + row * n;
  if (b.dsum != nullptr)
    simd::map(
        n, dx, [&](Vec v, Vec d, Vec w, Vec extra) { return gradient(v, d, w) + extra; }, s, dy, b.weight,
        b.dsum + row * n);
  else
    simd::map(n, dx, gradient, s, dy, b.weight);
  if (total != nullptr)
    simd::map(
        n, total, [](Vec sum, Vec d) { return sum + d; }, total, dx);
}

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_backward(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back();
  const RowChunks chunks(width == 0 ? 0 : spec.inputs[0].elements() / width, width);
  const bool has_bias = Centered && spec.attributes.boolean("has_bias");
  const bool has_total = Centered && spec.attributes.text("total") != "none";
  const bool rounds = has_total && spec.outputs.back().dtype != DType::f32;
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([chunks, width, has_bias, has_total, rounds](const device::Launch& launch) {
      Backward<T> b{};
      b.s = launch.in<T>(0);
      b.weight = launch.in<float>(1);
      b.mean = Centered ? launch.in<float>(2) : nullptr;
      b.rstd = launch.in<float>(Centered ? 3 : 2);
      b.dy = launch.in<T>(Centered ? 4 : 3);
      b.dsum = launch.in<T>(Centered ? 5 : 4);
      b.dx = launch.out<T>(0);
      b.width = width;
      const auto sums = static_cast<std::int64_t>(launch.outputs.size()) - 1;
      const std::int64_t stride = sums * width;
      auto* partials = static_cast<float*>(launch.workspace);
      launch.pool->run(chunks.chunks, [&](std::int64_t chunk) {
        float* dweight = partials + chunk * stride;
        std::fill(dweight, dweight + stride, 0.0F);
        for (std::int64_t row = chunks.begin(chunk); row < chunks.begin(chunk + 1); ++row)
          backward_row<Centered>(b, row, dweight, has_bias ? dweight + width : nullptr,
                                 has_total ? dweight + (sums - 1) * width : nullptr);
      });
      launch.pool->ranges(stride, 2048, [&](std::int64_t begin, std::int64_t end) {
        simd::for_vectors(end - begin, [&](std::int64_t i, std::int64_t lanes) {
          Vec total = simd::load_n(partials + begin + i, lanes);
          for (std::int64_t chunk = 1; chunk < chunks.chunks; ++chunk)
            total = total + simd::load_n(partials + chunk * stride + begin + i, lanes);
          simd::store_n(total, partials + begin + i, lanes);
        });
      });
      for (std::int64_t i = 0; i < sums; ++i) {
        const auto output = static_cast<std::size_t>(i) + 1;
        if (rounds && i + 1 == sums)
          simd::map(
              width, launch.out<T>(output), [](Vec v) { return v; }, partials + i * width);
        else
          std::copy_n(partials + i * width, width, launch.out<float>(output));
      }
    });
  });
}

std::size_t partials_bytes(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back();
  const RowChunks chunks(width == 0 ? 0 : spec.inputs[0].elements() / width, width);
  return static_cast<std::size_t>(chunks.chunks * width) * (spec.outputs.size() - 1) * sizeof(float);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_layer_norm_cpu(const ir::KernelSpec& spec) {
  return prepare_forward<true>(spec);
}
std::shared_ptr<device::Kernel> prepare_rms_norm_cpu(const ir::KernelSpec& spec) {
  return prepare_forward<false>(spec);
}

std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cpu(const ir::KernelSpec& spec) {
  return prepare_backward<true>(spec);
}
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cpu(const ir::KernelSpec& spec) {
  return prepare_backward<false>(spec);
}

std::size_t layer_norm_grad_workspace(const ir::KernelSpec& spec) { return partials_bytes(spec); }
std::size_t rms_norm_grad_workspace(const ir::KernelSpec& spec) { return partials_bytes(spec); }

}  // namespace trireme::ops
