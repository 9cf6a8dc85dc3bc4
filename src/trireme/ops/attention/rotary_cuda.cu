#include "trireme/ops/attention/rotary.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"

// rotary, softmax and its gradient.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMostFrequencies = 256;

// Turns per position, passed by value: no memory of the device is needed for them.
struct Frequencies {
  double value[kMostFrequencies];
};

// Of a block: threads, and pairs of vectors that a thread has on their way at once.
constexpr int kRotaryThreads = 256, kRotaryEach = 2;

struct RotarySizes {
  std::int64_t rows, positions;  // batch rows times positions
  int heads, half;
  int rows_per_block;
  float sign;
};

// A block has all heads of a few positions. Their turns are computed once, the angle in double as large positions need,
// while the first vectors are on their way.
template <int N, class T>
__global__ void __launch_bounds__(kRotaryThreads)
    rotary_kernel(const T* x, T* y, const std::int32_t* offset, const __grid_constant__ Frequencies f, RotarySizes z) {
  extern __shared__ float2 turns[];  // of each row and frequency: cosine and sine
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * z.rows_per_block;
  const int rows = static_cast<int>(z.rows - first < z.rows_per_block ? z.rows - first : z.rows_per_block);
  const int vectors = z.half / N, per_row = z.heads * vectors, items = rows * per_row;
  const std::int64_t base = first * z.heads * 2 * z.half;
  const auto at = [&](int i) { return base + static_cast<std::int64_t>(i / vectors) * 2 * z.half + i % vectors * N; };
  Pack<T, N> a[kRotaryEach], b[kRotaryEach];
  const auto fetch = [&](int begin) {
#pragma unroll
    for (int n = 0; n < kRotaryEach; ++n) {
      const int i = begin + n * kRotaryThreads;
      if (i >= items) break;
      a[n] = load<N>(x + at(i));
      b[n] = load<N>(x + at(i) + z.half);
    }
  };
  fetch(static_cast<int>(threadIdx.x));
  for (int j = static_cast<int>(threadIdx.x); j < rows * z.half; j += kRotaryThreads) {
    constexpr double kTurn = 6.283185307179586;
    const std::int64_t position = (first + j / z.half) % z.positions + (offset != nullptr ? *offset : 0);
    double angle = static_cast<double>(position) * f.value[j % z.half];
    angle -= floor(angle * (1 / kTurn)) * kTurn;
    float sine = 0, cosine = 0;
    sincosf(static_cast<float>(angle), &sine, &cosine);
    turns[j] = {cosine, sine * z.sign};
  }
  __syncthreads();
  for (int begin = static_cast<int>(threadIdx.x); begin < items; begin += kRotaryEach * kRotaryThreads) {
    if (begin >= kRotaryEach * kRotaryThreads) fetch(begin);
#pragma unroll
    for (int n = 0; n < kRotaryEach; ++n) {
      const int i = begin + n * kRotaryThreads;
      if (i >= items) break;
      const float2* turn = turns + i / per_row * z.half + i % vectors * N;
      Pack<T, N> c, d;
#pragma unroll
      for (int e = 0; e < N; ++e) {
        const float2 by = turn[e];
        c.v[e] = narrow<T>(wide(a[n].v[e]) * by.x - wide(b[n].v[e]) * by.y);
        d.v[e] = narrow<T>(wide(b[n].v[e]) * by.x + wide(a[n].v[e]) * by.y);
      }
      store<N>(y + at(i), c);
      store<N>(y + at(i) + z.half, d);
    }
  }
}

template <int N, class T>
void turn_heads(const device::Launch& launch, const Frequencies& f, RotarySizes z) {
  const int items = z.heads * z.half / N;  // of a row
  const auto most = static_cast<std::int64_t>(std::max(1, kRotaryEach * kRotaryThreads / items));
  z.rows_per_block = static_cast<int>(std::min<std::int64_t>({most, 2048 / z.half, z.rows}));
  const std::size_t shared = sizeof(float2) * static_cast<std::size_t>(z.rows_per_block * z.half);
  rotary_kernel<N><<<blocks(pieces(z.rows, z.rows_per_block)), kRotaryThreads, shared, stream_of(launch)>>>(
      launch.in<T>(0), launch.out<T>(0), launch.in<std::int32_t>(1), f, z);
  device::cuda::launched("rotary");
}

template <class T>
__global__ void softmax_kernel(const T* x, T* y, std::int64_t width) {
  __shared__ float shared[32];
  const T* from = x + blockIdx.x * width;
  T* to = y + blockIdx.x * width;
  float top = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, wide(from[i]));
  top = block_reduce<Largest>(top, shared);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += expf(wide(from[i]) - top);
  sum = block_reduce<Add>(sum, shared);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = narrow<T>(expf(wide(from[i]) - top) / sum);
}

template <class T>
__global__ void softmax_grad_kernel(const T* y, const T* dy, T* dx, std::int64_t width) {
  __shared__ float shared[32];
  const std::int64_t row = blockIdx.x * width;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += wide(y[row + i]) * wide(dy[row + i]);
  sum = block_reduce<Add>(sum, shared);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x)
    dx[row + i] = narrow<T>(wide(y[row + i]) * (wide(dy[row + i]) - sum));
}

}  // namespace

bool supports_rotary_cuda(const ir::KernelSpec& spec) { return spec.inputs[0].shape[3] / 2 <= kMostFrequencies; }

std::shared_ptr<device::Kernel> prepare_rotary_cuda(const ir::KernelSpec& spec) {
  const Shape& shape = spec.inputs[0].shape;
  const std::vector<double> frequencies = rotary_frequencies(shape[3], spec.attributes);
  Frequencies f{};
  std::copy(frequencies.begin(), frequencies.end(), f.value);
  const float sign = spec.attributes.boolean("inverse") ? -1.0F : 1.0F;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (shape.elements() == 0) return;
      const RotarySizes z{.rows = shape[0] * shape[1],
                          .positions = shape[1],
                          .heads = static_cast<int>(shape[2]),
                          .half = static_cast<int>(shape[3] / 2),
                          .rows_per_block = 1,
                          .sign = sign};
      if (z.half % kWidest<T> == 0 && aligned16(launch.inputs[0]) && aligned16(launch.outputs[0]))
        turn_heads<kWidest<T>, T>(launch, f, z);
      else
        turn_heads<1, T>(launch, f, z);
    });
  });
}

std::shared_ptr<device::Kernel> prepare_softmax_cuda(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / width;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([rows, width](const device::Launch& launch) {
      if (rows == 0) return;
      softmax_kernel<T><<<blocks(rows), 128, 0, stream_of(launch)>>>(launch.in<T>(0), launch.out<T>(0), width);
      device::cuda::launched("softmax");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_softmax_grad_cuda(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back(), rows = spec.inputs[0].elements() / width;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([rows, width](const device::Launch& launch) {
      if (rows == 0) return;
      softmax_grad_kernel<T>
          <<<blocks(rows), 128, 0, stream_of(launch)>>>(launch.in<T>(0), launch.in<T>(1), launch.out<T>(0), width);
      device::cuda::launched("softmax_grad");
    });
  });
}

}  // namespace trireme::ops
