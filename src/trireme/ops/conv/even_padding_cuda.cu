#include <algorithm>

#include "trireme/ops/conv/even_padding_cuda.h"
#include "trireme/ops/cuda/common.h"

namespace trireme::ops::cuda {

using device::cuda::ConvolutionSpec;

namespace {

constexpr int kThreads = 256;

// z[image, i + top, j + left] = x[image, i, j], zero elsewhere.
struct Padded {
  std::int64_t h, w, c, zh, zw, top, left;
};

template <class T>
__global__ void pad_kernel(Padded v, const T* x, T* z, std::int64_t count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const std::int64_t channel = at % v.c;
  const std::int64_t j = at / v.c % v.zw - v.left;
  const std::int64_t i = at / v.c / v.zw % v.zh - v.top;
  const std::int64_t image = at / v.c / v.zw / v.zh;
  const bool inside = i >= 0 && i < v.h && j >= 0 && j < v.w;
  z[at] = inside ? x[((image * v.h + i) * v.w + j) * v.c + channel] : T{0};
}

}  // namespace

ConvolutionSpec evened(const ConvolutionSpec& spec) {
  ConvolutionSpec z = spec;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t after = spec.padding_after(i);
    z.padding[i] = std::min(spec.padding[i], after);
    (i == 0 ? z.h : z.w) += std::max(spec.padding[i], after) - z.padding[i];
  }
  return z;
}

std::size_t evened_image_bytes(const ConvolutionSpec& spec) {
  const ConvolutionSpec z = evened(spec);
  return (static_cast<std::size_t>(z.n * z.h * z.w * z.c) * size_of(z.input) + 255) / 256 * 256;
}

void even_images(void* stream, const ConvolutionSpec& spec, const void* x, void* z) {
  const ConvolutionSpec to = evened(spec);
  const Padded v{.h = spec.h,
                 .w = spec.w,
                 .c = spec.c,
                 .zh = to.h,
                 .zw = to.w,
                 .top = spec.padding[0] - to.padding[0],
                 .left = spec.padding[1] - to.padding[1]};
  const std::int64_t count = to.n * to.h * to.w * to.c;
  const auto run = [&]<class T>(T) {
    pad_kernel<<<blocks(pieces(count, kThreads)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        v, static_cast<const T*>(x), static_cast<T*>(z), count);
  };
  if (size_of(spec.input) == 4)
    run(std::uint32_t{});
  else
    run(std::uint16_t{});
  device::cuda::launched("even padding of images");
}

}  // namespace trireme::ops::cuda
