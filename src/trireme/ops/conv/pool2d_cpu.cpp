#include <algorithm>
#include <limits>

#include "trireme/ops/conv/problem.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

namespace hn = simd::hn;

// The part of a window, or of the windows over a pixel, that exists: [first, last).
struct Range {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const { return last - first; }
};

// Pixels of an image of `extent` under window number `position`.
Range pixels(const Window& w, std::size_t dimension, std::int64_t position, std::int64_t extent) {
  const std::int64_t begin = position * w.stride[dimension] - w.padding[dimension];
  return {std::max<std::int64_t>(begin, 0), std::min(begin + w.kernel[dimension], extent)};
}

// Windows that cover a pixel.
Range windows(const Window& w, std::size_t dimension, std::int64_t pixel, std::int64_t positions) {
  const std::int64_t offset = pixel + w.padding[dimension];
  const std::int64_t stride = w.stride[dimension];
  const std::int64_t first = offset < w.kernel[dimension] ? 0 : (offset - w.kernel[dimension]) / stride + 1;
  return {first, std::min(offset / stride + 1, positions)};
}

// What one window's sum is divided by.
float divisor(const Window& w, bool include_padding, const Range& h, const Range& v) {
  return static_cast<float>(include_padding ? w.kernel[0] * w.kernel[1] : h.size() * v.size());
}

struct Images {
  std::int64_t n, h, w, c;
  explicit Images(const Shape& shape) : n(shape[0]), h(shape[1]), w(shape[2]), c(shape[3]) {}
  std::int64_t at(std::int64_t image, std::int64_t i, std::int64_t j) const { return ((image * h + i) * w + j) * c; }
};

// How an index of the whole image counts the pixels of a slice of it.
struct ImageIndex {
  std::int64_t top, left, width;
  bool slice;

  ImageIndex(const ir::Attributes& attributes, const Images& x)
      : top(attributes.integers("origin").at(0)),
        left(attributes.integers("origin").at(1)),
        width(attributes.integer("whole_width") == 0 ? x.w : attributes.integer("whole_width")),
        slice(attributes.integer("whole_width") != 0) {}
  std::int32_t of(std::int64_t i, std::int64_t j) const {
    return static_cast<std::int32_t>((i + top) * width + j + left);
  }
  // The pixel of the slice.
  std::int64_t pixel(std::int32_t index, const Images& x) const {
    return slice ? (index / width - top) * x.w + index % width - left : index;
  }
};

}  // namespace

Window pool_window(const ir::Attributes& attributes);

std::shared_ptr<device::Kernel> prepare_max_pool2d_cpu(const ir::KernelSpec& spec) {
  const Images x(spec.inputs[0].shape);
  const Images y(spec.outputs[0].shape);
  const Window window = pool_window(spec.attributes);
  const ImageIndex indices(spec.attributes, x);
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const T* in = launch.in<T>(0);
      launch.pool->run(y.n * y.h, [&](std::int64_t row) {
        const hn::RebindToSigned<simd::Tag> integers;
        const std::int64_t n = row / y.h;
        const std::int64_t i = row % y.h;
        const Range h = pixels(window, 0, i, x.h);
        for (std::int64_t j = 0; j < y.w; ++j) {
          const Range v = pixels(window, 1, j, x.w);
          const std::int64_t to = y.at(n, i, j);
          simd::for_vectors(y.c, [&](std::int64_t c, std::int64_t count) {
            simd::Vec best = simd::set(-std::numeric_limits<float>::infinity());
            auto where = hn::Set(integers, indices.of(h.first, v.first));
            for (std::int64_t a = h.first; a < h.last; ++a)
              for (std::int64_t b = v.first; b < v.last; ++b) {
                const simd::Vec value = simd::load_n(in + x.at(n, a, b) + c, count);
                const auto better = hn::Or(hn::Gt(value, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(value)));
                best = hn::IfThenElse(better, value, best);
                where = hn::IfThenElse(hn::RebindMask(integers, better), hn::Set(integers, indices.of(a, b)), where);
              }
            simd::store_n(best, launch.out<T>(0) + to + c, count);
            std::int32_t* const index = launch.out<std::int32_t>(1) + to + c;
            if (count == simd::kLanes)
              hn::StoreU(where, integers, index);
            else
              for (std::int64_t l = 0; l < count; ++l) index[l] = hn::ExtractLane(where, static_cast<std::size_t>(l));
          });
        }
      });
    });
  });
}

namespace {

// Windows may overlap, so gradients are added up in f32: in dx itself, or in a plane of a few channels per thread.
constexpr std::int64_t kPlaneChannels = 16;

std::size_t plane_bytes(const ir::KernelSpec& spec) {
  if (spec.outputs[0].dtype == DType::f32) return 0;
  const Images x(spec.outputs[0].shape);
  return static_cast<std::size_t>(x.h * x.w * kPlaneChannels) * sizeof(float);
}

}  // namespace

std::size_t max_pool2d_grad_cpu_workspace(const ir::KernelSpec& spec) {
  return plane_bytes(spec) * static_cast<std::size_t>(spec.threads);
}

std::shared_ptr<device::Kernel> prepare_max_pool2d_grad_cpu(const ir::KernelSpec& spec) {
  const Images y(spec.inputs[0].shape);
  const Images x(spec.outputs[0].shape);
  const std::size_t plane = plane_bytes(spec);
  const ImageIndex indices(spec.attributes, x);
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const std::int64_t strips = (x.c + kPlaneChannels - 1) / kPlaneChannels;
      launch.pool->run_with_worker(x.n * strips, [&](std::int64_t task, int worker) {
        const std::int64_t n = task / strips;
        const std::int64_t c = task % strips * kPlaneChannels;
        const std::int64_t channels = std::min(kPlaneChannels, x.c - c);
        const T* dy = launch.in<T>(0);
        const std::int32_t* index = launch.in<std::int32_t>(1);
        T* dx = launch.out<T>(0) + x.at(n, 0, 0) + c;
        float* sums = nullptr;
        std::int64_t stride = kPlaneChannels;
        if constexpr (std::is_same_v<T, float>) {
          sums = dx;
          stride = x.c;
        } else {
          sums = reinterpret_cast<float*>(static_cast<std::byte*>(launch.workspace) +
                                          plane * static_cast<std::size_t>(worker));
        }
        for (std::int64_t pixel = 0; pixel < x.h * x.w; ++pixel) std::fill_n(sums + pixel * stride, channels, 0.0F);
        for (std::int64_t pixel = 0; pixel < y.h * y.w; ++pixel) {
          const std::int64_t from = y.at(n, 0, 0) + pixel * y.c + c;
          for (std::int64_t l = 0; l < channels; ++l)
            sums[indices.pixel(index[from + l], x) * stride + l] += static_cast<float>(dy[from + l]);
        }
        if constexpr (!std::is_same_v<T, float>)
          for (std::int64_t pixel = 0; pixel < x.h * x.w; ++pixel)
            simd::map(
                channels, dx + pixel * x.c, [](simd::Vec v) { return v; }, sums + pixel * stride);
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_avg_pool2d_cpu(const ir::KernelSpec& spec) {
  const Images x(spec.inputs[0].shape);
  const Images y(spec.outputs[0].shape);
  const Window window = pool_window(spec.attributes);
  const bool include_padding = spec.attributes.boolean("count_include_pad");
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const T* in = launch.in<T>(0);
      launch.pool->run(y.n * y.h, [&](std::int64_t row) {
        const std::int64_t n = row / y.h;
        const std::int64_t i = row % y.h;
        const Range h = pixels(window, 0, i, x.h);
        for (std::int64_t j = 0; j < y.w; ++j) {
          const Range v = pixels(window, 1, j, x.w);
          const simd::Vec factor = simd::set(1.0F / divisor(window, include_padding, h, v));
          T* const out = launch.out<T>(0) + y.at(n, i, j);
          simd::for_vectors(y.c, [&](std::int64_t c, std::int64_t count) {
            simd::Vec sum = simd::zero();
            for (std::int64_t a = h.first; a < h.last; ++a)
              for (std::int64_t b = v.first; b < v.last; ++b) sum = sum + simd::load_n(in + x.at(n, a, b) + c, count);
            simd::store_n(sum * factor, out + c, count);
          });
        }
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_avg_pool2d_grad_cpu(const ir::KernelSpec& spec) {
  const Images y(spec.inputs[0].shape);
  const Images x(spec.outputs[0].shape);
  const Window window = pool_window(spec.attributes);
  const bool include_padding = spec.attributes.boolean("count_include_pad");
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const T* dy = launch.in<T>(0);
      launch.pool->run(x.n * x.h, [&](std::int64_t row) {
        const std::int64_t n = row / x.h;
        const std::int64_t i = row % x.h;
        const Range h = windows(window, 0, i, y.h);
        for (std::int64_t j = 0; j < x.w; ++j) {
          const Range v = windows(window, 1, j, y.w);
          T* const dx = launch.out<T>(0) + x.at(n, i, j);
          simd::for_vectors(x.c, [&](std::int64_t c, std::int64_t count) {
            simd::Vec sum = simd::zero();
            for (std::int64_t a = h.first; a < h.last; ++a)
              for (std::int64_t b = v.first; b < v.last; ++b) {
                const float d = divisor(window, include_padding, pixels(window, 0, a, x.h), pixels(window, 1, b, x.w));
                sum = hn::MulAdd(simd::load_n(dy + y.at(n, a, b) + c, count), simd::set(1.0F / d), sum);
              }
            simd::store_n(sum, dx + c, count);
          });
        }
      });
    });
  });
}

}  // namespace trireme::ops
