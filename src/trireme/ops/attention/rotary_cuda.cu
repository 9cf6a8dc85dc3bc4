#include "trireme/ops/attention/cuda_kernels.h"
#include "trireme/ops/attention/rotary.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"

// rotary, softmax and its gradient.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMaxFrequencies = 256;

// Turns per position, passed by value: no memory of the device is needed for them.
struct Frequencies {
  double value[kMaxFrequencies];
};

// Of a block at most: threads. And pairs of vectors that a thread has on their way at once.
constexpr int kRotaryThreads = 256, kRotaryEach = 4;

// N neighbours, as they lie in memory where they are 16 bytes: that takes fewer registers.
template <int N, class T>
struct Vector {
  static constexpr bool kWhole = N == kWidest<T>;
  std::conditional_t<kWhole, uint4, Pack<T, N>> words;

  __device__ __forceinline__ void fetch(const T* p) { words = *reinterpret_cast<const decltype(words)*>(p); }
  __device__ __forceinline__ float operator[](int j) const {
    if constexpr (kWhole)
      return Packed<T>(words)[j];
    else
      return wide(words.v[j]);
  }
};

struct RotarySizes {
  std::int64_t positions;
  int batch, heads, half;
  int together;  // positions of a block
  int apart;     // threads of a block that have the same position and frequencies
  float sign;
};

// A block has all heads of a few positions, in all rows of the batch. Their turns are computed once, the angle in
// double as large positions need, while the first vectors are on their way. A thread has the same position and
// frequencies all the time, and their turns in registers.
template <int N, class T>
__global__ void __launch_bounds__(kRotaryThreads, 3)
    rotary_kernel(const T* x, T* y, const std::int32_t* offset, const __grid_constant__ Frequencies f, RotarySizes z) {
  extern __shared__ __align__(16) float2 turns[];  // of each position and frequency: cosine and sine
  const int vectors = z.half / N, thread = static_cast<int>(threadIdx.x);
  const int vector = thread % vectors, own = thread / vectors % z.together;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * z.together, position = first + own;
  const int items = position < z.positions ? z.batch * z.heads : 0;
  const auto place_of = [&](int i) {
    const std::int64_t row = i / z.heads * z.positions + position;
    return (row * z.heads + i % z.heads) * 2 * z.half + vector * N;
  };
  // Where a thread finds those of neighbouring frequencies, two at a time, next to those of its neighbours.
  const auto turn_at = [&](int at_position, int j) {
    constexpr int kTwo = N > 1 ? 2 : 1;
    const int e = j % N;
    return at_position * z.half + (e / kTwo * vectors + j / N) * kTwo + e % kTwo;
  };
  Vector<N, T> a[kRotaryEach], b[kRotaryEach];
  std::int64_t at[kRotaryEach];
  const auto fetch = [&](int begin) {
#pragma unroll
    for (int n = 0; n < kRotaryEach; ++n) {
      const int i = begin + n * z.apart;
      if (i >= items) break;
      at[n] = place_of(i);
      a[n].fetch(x + at[n]);
      b[n].fetch(x + at[n] + z.half);
    }
  };
  const int start = thread / vectors / z.together;
  fetch(start);
  for (int j = thread; j < z.together * z.half; j += static_cast<int>(blockDim.x)) {
    constexpr double kHalfTurn = 3.141592653589793;
    const std::int64_t of = first + j / z.half + (offset != nullptr ? *offset : 0);
    double angle = static_cast<double>(of) * f.value[j % z.half] * (1 / kHalfTurn);
    angle -= 2 * floor(angle * 0.5);
    float sine = 0, cosine = 0;
    sincospif(static_cast<float>(angle), &sine, &cosine);
    turns[turn_at(j / z.half, j % z.half)] = {cosine, sine * z.sign};
  }
  __syncthreads();
  float2 turn[N];
  if constexpr (N > 1) {
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const auto two = *reinterpret_cast<const float4*>(turns + turn_at(own, vector * N + e));
      turn[e] = {two.x, two.y};
      turn[e + 1] = {two.z, two.w};
    }
  } else {
    turn[0] = turns[turn_at(own, vector)];
  }
  for (int begin = start; begin < items; begin += kRotaryEach * z.apart) {
    if (begin != start) fetch(begin);
#pragma unroll
    for (int n = 0; n < kRotaryEach; ++n) {
      const int i = begin + n * z.apart;
      if (i >= items) break;
      Pack<T, N> c, d;
#pragma unroll
      for (int e = 0; e < N; ++e) {
        const float2 by = turn[e];
        c.v[e] = narrow<T>(a[n][e] * by.x - b[n][e] * by.y);
        d.v[e] = narrow<T>(b[n][e] * by.x + a[n][e] * by.y);
      }
      store<N>(y + at[n], c);
      store<N>(y + at[n] + z.half, d);
    }
  }
}

template <int N, class T>
void turn_heads(const device::Launch& launch, const Frequencies& f, RotarySizes z) {
  const int vectors = z.half / N, most = kRotaryThreads / vectors;  // of one frequency
  // As many positions as give each thread its vectors, and threads that take turns in all of them.
  const int items = z.batch * z.heads;
  z.together = static_cast<int>(std::min<std::int64_t>(std::clamp(most * kRotaryEach / items, 1, most), z.positions));
  z.apart = std::min(most / z.together, items);
  const std::size_t shared = sizeof(float2) * static_cast<std::size_t>(z.together * z.half);
  rotary_kernel<N><<<blocks(pieces(z.positions, z.together)), static_cast<unsigned>(vectors * z.together * z.apart),
                     shared, stream_of(launch)>>>(launch.in<T>(0), launch.out<T>(0), launch.in<std::int32_t>(1), f, z);
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

bool supports_rotary_cuda(const ir::KernelSpec& spec) { return spec.inputs[0].shape[3] / 2 <= kMaxFrequencies; }

std::shared_ptr<device::Kernel> prepare_rotary_cuda(const ir::KernelSpec& spec) {
  const Shape& shape = spec.inputs[0].shape;
  const std::vector<double> frequencies = rotary_frequencies(shape[3], spec.attributes);
  Frequencies f{};
  std::copy(frequencies.begin(), frequencies.end(), f.value);
  const float sign = spec.attributes.boolean("inverse") ? -1.0F : 1.0F;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (shape.elements() == 0) return;
      const RotarySizes z{.positions = shape[1],
                          .batch = static_cast<int>(shape[0]),
                          .heads = static_cast<int>(shape[2]),
                          .half = static_cast<int>(shape[3] / 2),
                          .together = 1,
                          .apart = 1,
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
