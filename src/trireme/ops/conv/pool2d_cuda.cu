#include "trireme/ops/conv/cuda_kernels.h"
#include "trireme/ops/conv/problem.h"
#include "trireme/ops/cuda/common.h"

// Pooling and its gradients. A thread has N neighbouring channels of one pixel of the result; gradients gather what the
// windows over their pixel give, so that nothing is added by two threads.
namespace trireme::ops {

Window pool_window(const ir::Attributes& attributes);

namespace {

using namespace cuda;

struct Images {
  int h, w, c;
  explicit Images(const Shape& s) : h(static_cast<int>(s[1])), w(static_cast<int>(s[2])), c(static_cast<int>(s[3])) {}
  __device__ std::int64_t at(std::int64_t image, int i, int j) const { return ((image * h + i) * w + j) * c; }
};

struct Range {
  int first, last;
  __device__ int size() const { return last - first; }
};

struct Pooling {
  int kernel[2], stride[2], padding[2];
  explicit Pooling(const Window& window) {
    for (std::size_t i = 0; i < 2; ++i) {
      kernel[i] = static_cast<int>(window.kernel[i]);
      stride[i] = static_cast<int>(window.stride[i]);
      padding[i] = static_cast<int>(window.padding[i]);
    }
  }
  // Pixels of an image of `extent` under window number `position`.
  __device__ Range pixels(int dimension, int position, int extent) const {
    const int begin = position * stride[dimension] - padding[dimension];
    return {max(begin, 0), min(begin + kernel[dimension], extent)};
  }
  // Windows that cover a pixel.
  __device__ Range windows(int dimension, int pixel, int positions) const {
    const int offset = pixel + padding[dimension];
    const int first = offset < kernel[dimension] ? 0 : (offset - kernel[dimension]) / stride[dimension] + 1;
    return {first, min(offset / stride[dimension] + 1, positions)};
  }
  __device__ float divisor(bool include_padding, const Range& h, const Range& v) const {
    return static_cast<float>(include_padding ? kernel[0] * kernel[1] : h.size() * v.size());
  }
};

// Where the thread's N channels are: image, row, column and first channel of `images`.
struct Place {
  std::int64_t image;
  int i, j, c;
  __device__ Place(std::int64_t at, const Images& images) {
    c = static_cast<int>(at % images.c);
    const std::int64_t pixel = at / images.c;
    j = static_cast<int>(pixel % images.w);
    i = static_cast<int>(pixel / images.w % images.h);
    image = pixel / images.w / images.h;
  }
};

template <int N, class T>
__global__ void max_kernel(Pooling pool, Images x, Images y, const T* in, T* out, std::int32_t* index,
                           std::int64_t count) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= count) return;
  const Place p(at, y);
  const Range h = pool.pixels(0, p.i, x.h), v = pool.pixels(1, p.j, x.w);
  float best[N];
  Pack<std::int32_t, N> where;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    best[k] = -INFINITY;
    where.v[k] = h.first * x.w + v.first;
  }
  for (int a = h.first; a < h.last; ++a)
    for (int b = v.first; b < v.last; ++b) {
      const Pack<T, N> pack = load<N>(in + x.at(p.image, a, b) + p.c);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float value = wide(pack.v[k]);
        if (value > best[k] || (isnan(value) && !isnan(best[k]))) {
          best[k] = value;
          where.v[k] = a * x.w + b;
        }
      }
    }
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.v[k] = narrow<T>(best[k]);
  store<N>(out + at, result);
  constexpr int kWide = N < 4 ? N : 4;
#pragma unroll
  for (int k = 0; k < N; k += kWide) {
    Pack<std::int32_t, kWide> part;
#pragma unroll
    for (int m = 0; m < kWide; ++m) part.v[m] = where.v[k + m];
    store<kWide>(index + at + k, part);
  }
}

// A thread has Tile×Tile pixels, which share most of the windows over them. Windows that are not known (kernel 0) may
// be anywhere.
template <int Tile, int N, class T>
__global__ void max_grad_kernel(Pooling pool, Images x, Images tiles, Images y, const T* dy, const std::int32_t* index,
                                T* dx, std::int64_t count) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= count) return;
  const Place p(at, tiles);
  const int row = p.i * Tile, column = p.j * Tile;
  Range h{0, y.h}, v{0, y.w};
  if (pool.kernel[0] > 0) {
    h = {pool.windows(0, row, y.h).first, pool.windows(0, row + Tile - 1, y.h).last};
    v = {pool.windows(1, column, y.w).first, pool.windows(1, column + Tile - 1, y.w).last};
  }
  constexpr int kWide = N < 4 ? N : 4;
  float sum[Tile * Tile][N] = {};
  for (int a = h.first; a < h.last; ++a)
    for (int b = v.first; b < v.last; ++b) {
      const std::int64_t from = y.at(p.image, a, b) + p.c;
      const Pack<T, N> pack = load<N>(dy + from);
      Pack<std::int32_t, kWide> where[N / kWide];
#pragma unroll
      for (int k = 0; k < N / kWide; ++k) where[k] = load<kWide>(index + from + k * kWide);
#pragma unroll
      for (int t = 0; t < Tile * Tile; ++t) {
        const std::int32_t own = (row + t / Tile) * x.w + column + t % Tile;
#pragma unroll
        for (int k = 0; k < N; ++k) sum[t][k] += where[k / kWide].v[k % kWide] == own ? wide(pack.v[k]) : 0.0F;
      }
    }
#pragma unroll
  for (int t = 0; t < Tile * Tile; ++t) {
    const int i = row + t / Tile, j = column + t % Tile;
    if (i >= x.h || j >= x.w) continue;
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] = narrow<T>(sum[t][k]);
    store<N>(dx + x.at(p.image, i, j) + p.c, result);
  }
}

template <int N, class T>
__global__ void average_kernel(Pooling pool, Images x, Images y, bool include_padding, const T* in, T* out,
                               std::int64_t count) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= count) return;
  const Place p(at, y);
  const Range h = pool.pixels(0, p.i, x.h), v = pool.pixels(1, p.j, x.w);
  float sum[N] = {};
  for (int a = h.first; a < h.last; ++a)
    for (int b = v.first; b < v.last; ++b) {
      const Pack<T, N> pack = load<N>(in + x.at(p.image, a, b) + p.c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += wide(pack.v[k]);
    }
  const float factor = 1.0F / pool.divisor(include_padding, h, v);
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.v[k] = narrow<T>(sum[k] * factor);
  store<N>(out + at, result);
}

template <int N, class T>
__global__ void average_grad_kernel(Pooling pool, Images x, Images y, bool include_padding, const T* dy, T* dx,
                                    std::int64_t count) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= count) return;
  const Place p(at, x);
  const Range h = pool.windows(0, p.i, y.h), v = pool.windows(1, p.j, y.w);
  float sum[N] = {};
  for (int a = h.first; a < h.last; ++a)
    for (int b = v.first; b < v.last; ++b) {
      const float factor = 1.0F / pool.divisor(include_padding, pool.pixels(0, a, x.h), pool.pixels(1, b, x.w));
      const Pack<T, N> pack = load<N>(dy + y.at(p.image, a, b) + p.c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] = fmaf(wide(pack.v[k]), factor, sum[k]);
    }
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.v[k] = narrow<T>(sum[k]);
  store<N>(dx + at, result);
}

constexpr int kThreads = 256;

// Calls f with the number of channels of a thread and of blocks.
template <class T, class F>
void with_pack(const device::Launch& l, int channels, std::int64_t count, F&& f) {
  constexpr int N = kWidest<T>;
  if (count == 0) return;
  const bool aligned = std::all_of(l.inputs.begin(), l.inputs.end(), aligned16) &&
                       std::all_of(l.outputs.begin(), l.outputs.end(), aligned16);
  if (channels % N == 0 && aligned)
    f(std::integral_constant<int, N>{}, blocks(pieces(count / N, kThreads)));
  else
    f(std::integral_constant<int, 1>{}, blocks(pieces(count, kThreads)));
  device::cuda::launched("pooling");
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_max_pool2d_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([pool = Pooling(pool_window(spec.attributes)), x = Images(spec.inputs[0].shape),
                        y = Images(spec.outputs[0].shape),
                        count = spec.outputs[0].elements()](const device::Launch& l) {
      with_pack<T>(l, y.c, count, [&]<int N>(std::integral_constant<int, N>, unsigned grid) {
        max_kernel<N, T>
            <<<grid, kThreads, 0, stream_of(l)>>>(pool, x, y, l.in<T>(0), l.out<T>(0), l.out<std::int32_t>(1), count);
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_max_pool2d_grad_cuda(const ir::KernelSpec& spec) {
  Window window;
  for (std::size_t i = 0; i < 2; ++i) {
    window.kernel[i] = spec.attributes.integers("kernel")[i];
    window.stride[i] = spec.attributes.integers("stride")[i];
    window.padding[i] = spec.attributes.integers("padding")[i];
  }
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    const int tile = window.kernel[0] > 0 && window.stride[0] == 2 && window.stride[1] == 2 ? 2 : 1;
    Images tiles(spec.outputs[0].shape);
    tiles.h = (tiles.h + tile - 1) / tile;
    tiles.w = (tiles.w + tile - 1) / tile;
    const std::int64_t count = spec.outputs[0].shape[0] * tiles.h * tiles.w * tiles.c;
    return make_kernel([pool = Pooling(window), x = Images(spec.outputs[0].shape), y = Images(spec.inputs[0].shape),
                        tile, tiles, count](const device::Launch& l) {
      with_pack<T>(l, x.c, count, [&]<int N>(std::integral_constant<int, N>, unsigned grid) {
        const auto run = [&](auto kernel) {
          kernel<<<grid, kThreads, 0, stream_of(l)>>>(pool, x, tiles, y, l.in<T>(0), l.in<std::int32_t>(1), l.out<T>(0),
                                                      count);
        };
        tile == 2 ? run(max_grad_kernel<2, N, T>) : run(max_grad_kernel<1, N, T>);
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_avg_pool2d_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([pool = Pooling(pool_window(spec.attributes)), x = Images(spec.inputs[0].shape),
                        y = Images(spec.outputs[0].shape), count = spec.outputs[0].elements(),
                        padded = spec.attributes.boolean("count_include_pad")](const device::Launch& l) {
      with_pack<T>(l, y.c, count, [&]<int N>(std::integral_constant<int, N>, unsigned grid) {
        average_kernel<N, T><<<grid, kThreads, 0, stream_of(l)>>>(pool, x, y, padded, l.in<T>(0), l.out<T>(0), count);
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_avg_pool2d_grad_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([pool = Pooling(pool_window(spec.attributes)), x = Images(spec.outputs[0].shape),
                        y = Images(spec.inputs[0].shape), count = spec.outputs[0].elements(),
                        padded = spec.attributes.boolean("count_include_pad")](const device::Launch& l) {
      with_pack<T>(l, x.c, count, [&]<int N>(std::integral_constant<int, N>, unsigned grid) {
        average_grad_kernel<N, T>
            <<<grid, kThreads, 0, stream_of(l)>>>(pool, x, y, padded, l.in<T>(0), l.out<T>(0), count);
      });
    });
  });
}

}  // namespace trireme::ops
