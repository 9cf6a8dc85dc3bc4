#include "trireme/ops/conv/fold_cuda.h"
#include "trireme/ops/cuda/common.h"

namespace trireme::ops::cuda {

using device::cuda::ConvolutionSpec;

namespace {

constexpr int kThreads = 256;

struct Fold {
  int h, w, c;       // of x
  int zh, zw, zc;    // of z
  int r, s, vr, vs;  // kernels of w and v
  int offset[2];     // o
  int shift[2];      // 2o − padding
  bool even;         // rows of x have an even number of values

  explicit Fold(const ConvolutionSpec& spec) {
    const ConvolutionSpec z = folded(spec);
    const auto to = [](std::int64_t x) { return static_cast<int>(x); };
    h = to(spec.h), w = to(spec.w), c = to(spec.c);
    zh = to(z.h), zw = to(z.w), zc = to(z.c);
    even = spec.w % 2 == 0;
    r = to(spec.r), s = to(spec.s), vr = to(z.r), vs = to(z.s);
    for (std::size_t i = 0; i < 2; ++i) {
      offset[i] = to((spec.padding[i] + 1) / 2);
      shift[i] = to(2 * ((spec.padding[i] + 1) / 2) - spec.padding[i]);
    }
  }
};

// A pixel of z to a thread; zc is 8 or 16.
template <class T>
__global__ void images_kernel(Fold f, const T* x, T* z, std::int64_t pixels) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= pixels) return;
  const int j = static_cast<int>(at % f.zw);
  const int i = static_cast<int>(at / f.zw % f.zh);
  const std::int64_t image = at / f.zw / f.zh;
  alignas(16) T values[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) values[k] = T{0};
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    const int row = 2 * (i - f.offset[0]) + a, column = 2 * (j - f.offset[1]);
    if (row < 0 || row >= f.h) continue;
    const T* const from = x + ((image * f.h + row) * f.w + column) * f.c;
    // Two pixels of a row lie together. (By constants, so that the values stay in registers.)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k >= f.c) continue;
      T pair[2] = {0, 0};
      if (f.even && column >= 0 && column < f.w) {
        const unsigned both = *reinterpret_cast<const unsigned*>(from + 2 * k);
        pair[0] = static_cast<T>(both);
        pair[1] = static_cast<T>(both >> 16);
      } else {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int pixel = column + (2 * k + m) / f.c;
          if (pixel >= 0 && pixel < f.w) pair[m] = from[2 * k + m];
        }
      }
#pragma unroll
      for (int m = 0; m < 16; m += 2)
        if (m == 2 * (a * f.c + k)) values[m] = pair[0], values[m + 1] = pair[1];
    }
  }
  T* const to = z + at * f.zc;
  store<8>(to, *reinterpret_cast<const Pack<T, 8>*>(values));
  if (f.zc > 8) store<8>(to + 8, *reinterpret_cast<const Pack<T, 8>*>(values + 8));
}

// Where a weight of v[k, u, u', channel] is in w; −1: nowhere.
__device__ __forceinline__ std::int64_t source(const Fold& f, std::int64_t at) {
  const int channel = static_cast<int>(at % f.zc);
  const int v = static_cast<int>(at / f.zc % f.vs);
  const int u = static_cast<int>(at / f.zc / f.vs % f.vr);
  const std::int64_t k = at / f.zc / f.vs / f.vr;
  if (channel >= 4 * f.c) return -1;
  const int a = channel / f.c / 2, b = channel / f.c % 2;
  const int row = 2 * u + a - f.shift[0], column = 2 * v + b - f.shift[1];
  if (row < 0 || row >= f.r || column < 0 || column >= f.s) return -1;
  return ((k * f.r + row) * f.s + column) * f.c + channel % f.c;
}

template <class T>
__global__ void weights_kernel(Fold f, const T* w, T* v, std::int64_t count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const std::int64_t from = source(f, at);
  v[at] = from < 0 ? T{0} : w[from];
}

// Each weight of w is in one place of v.
template <class T>
__global__ void gradients_kernel(Fold f, const T* v, T* w, std::int64_t count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const std::int64_t to = source(f, at);
  if (to >= 0) w[to] = v[at];
}

std::int64_t folded_weights(const ConvolutionSpec& spec) {
  const ConvolutionSpec z = folded(spec);
  return z.k * z.r * z.s * z.c;
}

}  // namespace

bool foldable(const ConvolutionSpec& s) {
  const std::array<std::int64_t, 2> ones{1, 1};
  const std::array<std::int64_t, 2> twos{2, 2};
  return size_of(s.input) == 2 && s.c <= 4 && s.groups == 1 && s.stride == twos && s.dilation == ones && s.r > 1 &&
         s.s > 1 && s.pass != ConvolutionSpec::Pass::input_gradient;
}

ConvolutionSpec folded(const ConvolutionSpec& s) {
  const auto extent = [](std::int64_t kernel, std::int64_t padding) {
    return (kernel + 2 * ((padding + 1) / 2) - padding + 1) / 2;
  };
  ConvolutionSpec z = s;
  z.r = extent(s.r, s.padding[0]);
  z.s = extent(s.s, s.padding[1]);
  z.h = s.p + z.r - 1;
  z.w = s.q + z.s - 1;
  z.c = (4 * s.c + 7) / 8 * 8;
  z.stride = {1, 1};
  z.padding = {0, 0};
  return z;
}

std::size_t folded_image_bytes(const ConvolutionSpec& s) {
  const ConvolutionSpec z = folded(s);
  return (static_cast<std::size_t>(z.n * z.h * z.w * z.c) * size_of(z.input) + 255) / 256 * 256;
}

std::size_t folded_weight_bytes(const ConvolutionSpec& s) {
  const DType dtype = s.pass == ConvolutionSpec::Pass::weight_gradient ? s.output : s.input;
  return (static_cast<std::size_t>(folded_weights(s)) * size_of(dtype) + 255) / 256 * 256;
}

void fold_images(void* stream, const ConvolutionSpec& s, const void* x, void* z) {
  const Fold f(s);
  const std::int64_t pixels = s.n * f.zh * f.zw;
  images_kernel<<<blocks(pieces(pixels, kThreads)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      f, static_cast<const std::uint16_t*>(x), static_cast<std::uint16_t*>(z), pixels);
  device::cuda::launched("folding of images");
}

void fold_weights(void* stream, const ConvolutionSpec& s, const void* w, void* v) {
  const std::int64_t count = folded_weights(s);
  weights_kernel<<<blocks(pieces(count, kThreads)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Fold(s), static_cast<const std::uint16_t*>(w), static_cast<std::uint16_t*>(v), count);
  device::cuda::launched("folding of weights");
}

void unfold_weights(void* stream, const ConvolutionSpec& s, const void* v, void* w) {
  const std::int64_t count = folded_weights(s);
  const auto run = [&]<class T>(T) {
    gradients_kernel<<<blocks(pieces(count, kThreads)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        Fold(s), static_cast<const T*>(v), static_cast<T*>(w), count);
  };
  if (size_of(s.output) == 4)
    run(std::uint32_t{});
  else
    run(std::uint16_t{});
  device::cuda::launched("unfolding of weights");
}

}  // namespace trireme::ops::cuda
