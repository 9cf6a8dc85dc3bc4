#pragma once
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"

// The gradients of layer_norm and rms_norm for rows of 16-bit numbers that a block of threads takes two at a time: a
// thread has 16 bytes of each, from the first read to the last write in registers. Loads of one block overlap the
// arithmetic of the others on the processor, and the sums over a row take one barrier for two rows.
namespace trireme::ops::cuda {

template <class T>
struct Backward {
  const T* s;
  const float* weight;
  const float* mean;
  const float* rstd;
  const T* dy;
  const T* dsum;
  T* dx;
  float* partials;  // [block][dweight, dbias, total][width]; those that are wanted
  std::int64_t rows;
  int width;
  int stride;  // of a block's partials
  bool has_bias;
};

template <int N>
struct Floats {
  float v[N];
  Floats() = default;
  __device__ __forceinline__ explicit Floats(const float* p) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const Pack<float, 4> four = load<4>(p + k);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[k + j] = four.v[j];
    }
  }
};

inline constexpr int kRowsAtOnce = 2;

// Blocks of so many threads on a processor, at most `threads` each: what their registers allow.
constexpr int row_blocks(int threads, bool centered, bool total) {
  if (threads > 128) return threads > 256 ? 2 : centered && (total || threads > 224) ? 3 : 4;
  return (total ? 640 : 768) / threads;
}

// Sums over the threads of a warp of four numbers; lane 8·i and those behind it get that of v[i].
__device__ __forceinline__ float warp_sums(const float (&v)[4]) {
  const bool upper = (threadIdx.x & 16U) != 0, odd = (threadIdx.x & 8U) != 0;
  const auto half = [](bool second, float a, float b, unsigned apart) {
    return (second ? b : a) + __shfl_xor_sync(0xffffffffU, second ? a : b, apart);
  };
  float x = half(odd, half(upper, v[0], v[2], 16), half(upper, v[1], v[3], 16), 8);
#pragma unroll
  for (unsigned apart = 4; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffU, x, apart);
  return x;
}

// `Most` threads at most; the columns of a row are those of the block's threads, the last of which may be idle.
// `Total`: with the sums of dx.
template <bool Centered, bool Total, bool Whole, int Most, class T>
__global__ void __launch_bounds__(Most, row_blocks(Most, Centered, Total)) rows_backward_kernel(Backward<T> b) {
  constexpr int N = kWidest<T>;
  constexpr int R = kRowsAtOnce;
  static_assert(N == 8 && R == 2);
  __shared__ __align__(16) float shared[2][Most / 32][2 * R];
  const int first = static_cast<int>(threadIdx.x) * N;
  const bool inside = Whole || first < b.width;
  const unsigned warps = blockDim.x / 32;
  float dweight[N] = {}, dbias[N] = {}, all[N] = {};
  Floats<N> weight{};
  if (inside) weight = Floats<N>(b.weight + first);
  const float inverse = 1.0F / static_cast<float>(b.width);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * R;
  int turn = 0;
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * R; r < b.rows; r += step, turn = 1 - turn) {
    uint4 s[R], dy[R], more[R];
    float rstd[R], shift[R];
#pragma unroll
    for (int k = 0; k < R; ++k) {
      s[k] = dy[k] = more[k] = make_uint4(0, 0, 0, 0);
      if (!inside || r + k >= b.rows) continue;
      const std::int64_t at = (r + k) * b.width + first;
      s[k] = *reinterpret_cast<const uint4*>(b.s + at);
      dy[k] = *reinterpret_cast<const uint4*>(b.dy + at);
      if (b.dsum != nullptr) more[k] = *reinterpret_cast<const uint4*>(b.dsum + at);
    }
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const bool there = r + k < b.rows;
      rstd[k] = there ? b.rstd[r + k] : 0;
      shift[k] = Centered && there ? -b.mean[r + k] * rstd[k] : 0;
    }
    float sums[2 * R] = {};
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const Packed<T> x16(s[k]), d16(dy[k]);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float d = d16[j];
        const float x = fmaf(x16[j], rstd[k], shift[k]);
        const float g = d * weight.v[j];
        dweight[j] = fmaf(d, x, dweight[j]);
        if constexpr (Centered) {
          dbias[j] += d;
          sums[2 * k] += g;
        }
        sums[2 * k + 1] = fmaf(g, x, sums[2 * k + 1]);
      }
    }
    const float mine = warp_sums(sums);
    if (threadIdx.x % 8 == 0) shared[turn][threadIdx.x / 32][threadIdx.x % 32 / 8] = mine;
    __syncthreads();
    float total[2 * R] = {};
    for (unsigned w = 0; w < warps; ++w) {
      const Pack<float, 4> four = load<4>(shared[turn][w]);
#pragma unroll
      for (int i = 0; i < 2 * R; ++i) total[i] += four.v[i];
    }
#pragma unroll
    for (int k = 0; k < R; ++k) {
      if (!inside || r + k >= b.rows) continue;
      // dx = rstd · (g − Σg/n − x·Σgx/n)
      const float p = -total[2 * k + 1] * inverse * rstd[k], q = -total[2 * k] * inverse * rstd[k];
      const Packed<T> x16(s[k]), d16(dy[k]), m16(more[k]);
      float v[N];
#pragma unroll
      for (int j = 0; j < N; ++j)
        v[j] = fmaf(d16[j] * weight.v[j], rstd[k], fmaf(fmaf(x16[j], rstd[k], shift[k]), p, q)) + m16[j];
      const uint4 dx = make_uint4(pair<T>(v[0], v[1]), pair<T>(v[2], v[3]), pair<T>(v[4], v[5]), pair<T>(v[6], v[7]));
      *reinterpret_cast<uint4*>(b.dx + (r + k) * b.width + first) = dx;
      if constexpr (Total) {
        const Packed<T> rounded(dx);
#pragma unroll
        for (int j = 0; j < N; ++j) all[j] += rounded[j];
      }
    }
  }
  if (!inside) return;
  float* const to = b.partials + static_cast<std::int64_t>(blockIdx.x) * b.stride + first;
#pragma unroll
  for (int j = 0; j < N; j += 4) {
    store<4>(to + j, Pack<float, 4>{dweight[j], dweight[j + 1], dweight[j + 2], dweight[j + 3]});
    if (b.has_bias) store<4>(to + b.width + j, Pack<float, 4>{dbias[j], dbias[j + 1], dbias[j + 2], dbias[j + 3]});
    if constexpr (Total)
      store<4>(to + b.stride - b.width + j, Pack<float, 4>{all[j], all[j + 1], all[j + 2], all[j + 3]});
  }
}

// Threads of a block for rows of that many bytes of 16-bit numbers; 0: the kernel has no use for them. Short rows leave
// most of a block's threads without work, and long ones would leave a processor with one block.
template <bool Centered>
int row_threads(std::int64_t width) {
  if (width % 8 != 0) return 0;
  const std::int64_t threads = pieces(width / 8, 32) * 32;
  return threads >= 96 && threads <= (Centered ? 256 : 512) ? static_cast<int>(threads) : 0;
}

// Calls f with the kernel for blocks of that many threads.
template <bool Centered, bool Total, class T, class F>
void with_rows_kernel(int threads, bool whole, F&& f) {
  const auto most = [&]<bool Whole>(std::bool_constant<Whole>) {
    if (threads <= 128) return f(rows_backward_kernel<Centered, Total, Whole, 128, T>);
    if (threads <= 192) return f(rows_backward_kernel<Centered, Total, Whole, 192, T>);
    if (threads <= 224) return f(rows_backward_kernel<Centered, Total, Whole, 224, T>);
    if (threads <= 256) return f(rows_backward_kernel<Centered, Total, Whole, 256, T>);
    if constexpr (!Centered) f(rows_backward_kernel<Centered, Total, Whole, 512, T>);
  };
  whole ? most(std::true_type{}) : most(std::false_type{});
}

}  // namespace trireme::ops::cuda
