#pragma once
#include "trireme/ops/cuda/common.h"

// The kernels of batch normalisation, shared by the op and by its parts for rows that several ranks have.
//
// A thread has N neighbouring channels of every so many rows, so that what belongs to a channel stays in registers.
// Sums over the rows are taken in two stages: a block's rows, then the blocks in order. The kernels that come second go
// through the rows from the end: what the first ones read last may still be in the cache.
namespace trireme::ops::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kRowsAhead = 4;               // loads of a thread on their way at once
inline constexpr std::int64_t kNormBlocks = 1056;  // enough for any GPU

// How rows [rows, channels] are shared out: by the sizes alone, whatever N is.
struct NormGrid {
  std::int64_t rows = 0;
  int channels = 0;
  int widest = 1;  // channels of a thread where pointers allow it
  std::int64_t chunks = 1;

  explicit NormGrid(const TensorType& x) {
    channels = static_cast<int>(x.shape.back());
    rows = channels == 0 ? 0 : x.elements() / channels;
    const int most = static_cast<int>(16 / size_of(x.dtype));
    widest = channels % most == 0 ? most : 1;
    const std::int64_t least = static_cast<std::int64_t>(down(widest)) * kRowsAhead;
    chunks = std::clamp<std::int64_t>(kNormBlocks / columns(widest), 1, std::max<std::int64_t>(1, pieces(rows, least)));
  }
  int across(int n) const {  // threads side by side
    int threads = 1;
    while (threads < 32 && threads * n < channels) threads *= 2;
    return threads;
  }
  int down(int n) const { return kNormThreads / across(n); }
  std::int64_t columns(int n) const { return pieces(channels, static_cast<std::int64_t>(across(n)) * n); }
  dim3 threads(int n) const { return dim3(static_cast<unsigned>(across(n)), static_cast<unsigned>(down(n))); }
  dim3 grid(int n) const { return dim3(blocks(columns(n)), blocks(chunks)); }
  // Where nothing is summed up there may be more blocks.
  dim3 free_grid(int n) const {
    const std::int64_t least = static_cast<std::int64_t>(down(n)) * kRowsAhead * 4;
    return dim3(blocks(columns(n)), blocks(std::clamp<std::int64_t>(pieces(rows, least), 1, 65535)));
  }
};

// Rows of a block.
struct NormRows {
  std::int64_t begin, end;
  __device__ NormRows(std::int64_t rows, std::int64_t chunk, std::int64_t chunks)
      : begin(rows * chunk / chunks), end(rows * (chunk + 1) / chunks) {}
};

template <int N>
__device__ __forceinline__ int norm_channel() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N;
}

// Calls body(first row, how many of kRowsAhead) for the rows of a thread.
template <class F>
__device__ __forceinline__ void over_rows(const NormRows& rows, F&& body) {
  const auto step = static_cast<std::int64_t>(blockDim.y);
  std::int64_t r = rows.begin + threadIdx.y;
  for (; r + (kRowsAhead - 1) * step < rows.end; r += kRowsAhead * step) body(r, kRowsAhead);
  if (r < rows.end) body(r, static_cast<int>((rows.end - r + step - 1) / step));
}

// Per channel and chunk: a number near the mean, how far the mean is from it, and the squared deviations from the mean.
// Laid out as [chunk][which][channel].
template <int N, class T>
__global__ void __launch_bounds__(kNormThreads)
    statistics_kernel(const T* x, std::int64_t rows, int channels, float* partials) {
  __shared__ float shared_mean[kNormThreads][N + 1];
  __shared__ float shared_squares[kNormThreads][N + 1];
  __shared__ float shared_count[kNormThreads];
  const int c = norm_channel<N>();
  const NormRows own(rows, blockIdx.y, gridDim.y);
  const auto step = static_cast<std::int64_t>(blockDim.y);
  float base[N] = {}, sum[N] = {}, squares[N] = {};
  float count = 0;
  if (c < channels)
    over_rows(own, [&](std::int64_t r, int valid) {
      Pack<T, N> pack[kRowsAhead];
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) pack[k] = load<N>(x + (r + k * step) * channels + c);
      if (count == 0) {
        const float inverse = 1.0F / static_cast<float>(valid);
#pragma unroll
        for (int j = 0; j < N; ++j) {
#pragma unroll
          for (int k = 0; k < kRowsAhead; ++k)
            if (k < valid) base[j] += wide(pack[k].v[j]) * inverse;
        }
      }
      count += static_cast<float>(valid);
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid)
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float d = wide(pack[k].v[j]) - base[j];
            sum[j] += d;
            squares[j] = fmaf(d, d, squares[j]);
          }
    });
  // From sums about a thread's own base to mean and deviations about the base of the first thread.
  const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
  if (threadIdx.y == 0)
#pragma unroll
    for (int j = 0; j < N; ++j) shared_mean[threadIdx.x][j] = base[j];
  __syncthreads();
  float common[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    common[j] = shared_mean[threadIdx.x][j];
    const float apart = count > 0 ? sum[j] / count : 0;
    squares[j] = fmaxf(0.0F, squares[j] - sum[j] * apart);
    sum[j] = base[j] - common[j] + apart;  // the mean from here on
  }
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half && threadIdx.y < 2 * half) {
      shared_count[me] = count;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        shared_mean[me][j] = sum[j];
        shared_squares[me][j] = squares[j];
      }
    }
    __syncthreads();
    if (threadIdx.y < half) {
      const unsigned other = me + half * blockDim.x;
      const float more = shared_count[other];
      const float share = more > 0 ? more / (count + more) : 0;
      // A thread without rows has no mean of its own, and comes behind those that have some.
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float delta = more > 0 ? shared_mean[other][j] - sum[j] : 0;
        sum[j] = fmaf(delta, share, sum[j]);
        squares[j] += shared_squares[other][j] + delta * delta * count * share;
      }
      count += more;
    }
  }
  if (threadIdx.y != 0 || c >= channels) return;
  float* const to = partials + static_cast<std::int64_t>(blockIdx.y) * 3 * channels + c;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    to[j] = common[j];
    to[channels + j] = sum[j];
    to[2 * channels + j] = squares[j];
  }
}

inline constexpr int kJoinRows = 32;  // warps of a block that joins chunks, each with 32 channels

// Sums of a channel over the chunks, by the warps of its block; the first warp gets them.
template <int Count, class F>
__device__ __forceinline__ void join_chunks(std::int64_t chunks, double (&total)[Count], F&& term) {
  __shared__ double shared[Count][kJoinRows][33];
#pragma unroll
  for (int i = 0; i < Count; ++i) total[i] = 0;
  for (std::int64_t k = threadIdx.y; k < chunks; k += kJoinRows) term(k, total);
#pragma unroll
  for (int i = 0; i < Count; ++i) shared[i][threadIdx.y][threadIdx.x] = total[i];
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int i = 0; i < Count; ++i)
    for (int w = 1; w < kJoinRows; ++w) total[i] += shared[i][w][threadIdx.x];
}

struct Moments {
  double mean, squares;
};
// Of a channel over all rows, for the threads of the first warp.
__device__ __forceinline__ Moments joined_moments(const float* partials, std::int64_t rows, std::int64_t chunks,
                                                  int channels, int channel) {
  const int c = channel < channels ? channel : 0;
  const double reference = static_cast<double>(partials[c]) + static_cast<double>(partials[channels + c]);
  double total[2];
  join_chunks(chunks, total, [&](std::int64_t k, double(&sums)[2]) {
    const float* const p = partials + k * 3 * channels + c;
    const NormRows own(rows, k, chunks);
    const auto count = static_cast<double>(own.end - own.begin);
    const double delta = static_cast<double>(p[0]) + static_cast<double>(p[channels]) - reference;
    sums[0] += count * delta;
    sums[1] += static_cast<double>(p[2 * channels]) + count * delta * delta;
  });
  const auto n = static_cast<double>(rows);
  return {reference + total[0] / n, fmax(0.0, total[1] - total[0] * total[0] / n)};
}

// What is kept of each channel, and what the normalisation of a value takes.
struct Normalisation {
  const float *weight, *bias, *running_mean, *running_var;
  float *mean, *rstd, *new_mean, *new_var;
  float *factor, *shift;
  double momentum, eps;

  __device__ void set(int c, double center, double variance) const {
    const double deviation = sqrt(variance + eps);
    const double w = weight[c];
    mean[c] = static_cast<float>(center);
    rstd[c] = static_cast<float>(1 / deviation);
    factor[c] = static_cast<float>(w / deviation);
    // What rounding took from the mean goes into the shift.
    shift[c] = static_cast<float>(static_cast<double>(bias[c]) -
                                  (center - static_cast<double>(static_cast<float>(center))) * w / deviation);
  }
  __device__ void trained(int c, double center, double squares, double rows) const {
    new_mean[c] = static_cast<float>((1 - momentum) * static_cast<double>(running_mean[c]) + momentum * center);
    new_var[c] = static_cast<float>((1 - momentum) * static_cast<double>(running_var[c]) +
                                    momentum * squares / fmax(1.0, rows - 1));
    set(c, center, squares / rows);
  }
};

template <int N, class T>
struct Apply {
  const T* x;
  const T* residual;  // null: none
  const float *mean, *factor, *shift;
  T* y;
  std::int64_t rows;
  int channels;
};

// y = relu((x − mean)·factor + shift + residual)
template <bool Relu, int N, class T>
__global__ void __launch_bounds__(kNormThreads) apply_kernel(Apply<N, T> a) {
  const int c = norm_channel<N>();
  if (c >= a.channels) return;
  const NormRows own(a.rows, gridDim.y - 1 - blockIdx.y, gridDim.y);
  const auto step = static_cast<std::int64_t>(blockDim.y);
  float mean[N], factor[N], shift[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    mean[j] = a.mean[c + j];
    factor[j] = a.factor[c + j];
    shift[j] = a.shift[c + j];
  }
  over_rows(own, [&](std::int64_t r, int valid) {
    Pack<T, N> pack[kRowsAhead], more[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) pack[k] = load<N>(a.x + (r + k * step) * a.channels + c);
    if (a.residual != nullptr)
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) more[k] = load<N>(a.residual + (r + k * step) * a.channels + c);
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          float v = fmaf(wide(pack[k].v[j]) - mean[j], factor[j], shift[j]);
          if (a.residual != nullptr) v += wide(more[k].v[j]);
          pack[k].v[j] = narrow<T>(Relu && v < 0 ? 0.0F : v);
        }
        store<N>(a.y + (r + k * step) * a.channels + c, pack[k]);
      }
  });
}

// Where the gradient passes an activation.
enum class Gate { none, recomputed, saved };

template <class T>
struct Gradient {
  const T* x;
  const T* dy;
  const T* more;  // null, or added to dy
  const T* y;     // Gate::saved: positive where the gradient passes
  const float *mean, *factor, *shift;
  T* total;  // null, or where what comes through the gate is left
  std::int64_t rows;
  int channels;
};

// The gradient that comes through, for one value.
template <Gate G, class T>
__device__ __forceinline__ float passed(float d, float centred, float factor, float shift, T y) {
  if constexpr (G == Gate::recomputed) return wide(narrow<T>(fmaf(centred, factor, shift))) > 0 ? d : 0.0F;
  if constexpr (G == Gate::saved) return wide(y) > 0 ? d : 0.0F;
  return d;
}

// Per channel and chunk: the sums of d and of d·(x − mean), as [chunk][which][channel].
template <Gate G, int N, class T>
__global__ void __launch_bounds__(kNormThreads) sums_kernel(Gradient<T> g, float* partials) {
  __shared__ float shared[2][kNormThreads][N + 1];
  const int c = norm_channel<N>();
  const NormRows own(g.rows, blockIdx.y, gridDim.y);
  const auto step = static_cast<std::int64_t>(blockDim.y);
  float sum[N] = {}, product[N] = {};
  if (c < g.channels) {
    float mean[N], factor[N], shift[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      mean[j] = g.mean[c + j];
      factor[j] = G == Gate::recomputed ? g.factor[c + j] : 0;
      shift[j] = G == Gate::recomputed ? g.shift[c + j] : 0;
    }
    over_rows(own, [&](std::int64_t r, int valid) {
      Pack<T, N> x[kRowsAhead], dy[kRowsAhead], y[kRowsAhead], more[kRowsAhead];
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) {
          const std::int64_t at = (r + k * step) * g.channels + c;
          x[k] = load<N>(g.x + at);
          dy[k] = load<N>(g.dy + at);
          if constexpr (G == Gate::saved) y[k] = load<N>(g.y + at);
        }
      if (g.more != nullptr)
#pragma unroll
        for (int k = 0; k < kRowsAhead; ++k)
          if (k < valid) more[k] = load<N>(g.more + (r + k * step) * g.channels + c);
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float centred = wide(x[k].v[j]) - mean[j];
            float d = wide(dy[k].v[j]);
            if (g.more != nullptr) d += wide(more[k].v[j]);
            d = passed<G>(d, centred, factor[j], shift[j], y[k].v[j]);
            if (g.total != nullptr) {
              dy[k].v[j] = narrow<T>(d);
              d = wide(dy[k].v[j]);
            }
            sum[j] += d;
            product[j] = fmaf(d, centred, product[j]);
          }
          if (g.total != nullptr) store<N>(g.total + (r + k * step) * g.channels + c, dy[k]);
        }
    });
  }
  const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half && threadIdx.y < 2 * half)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        shared[0][me][j] = sum[j];
        shared[1][me][j] = product[j];
      }
    __syncthreads();
    if (threadIdx.y < half)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        sum[j] += shared[0][me + half * blockDim.x][j];
        product[j] += shared[1][me + half * blockDim.x][j];
      }
  }
  if (threadIdx.y != 0 || c >= g.channels) return;
  float* const to = partials + static_cast<std::int64_t>(blockIdx.y) * 2 * g.channels + c;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    to[j] = sum[j];
    to[g.channels + j] = product[j];
  }
}

// dx = d·slope + (x − mean)·lean + level
struct Slopes {
  float *slope, *lean, *level;
  __device__ void set(int c, double weight, double rstd, double dweight, double dbias, double inverse_rows) const {
    slope[c] = static_cast<float>(weight * rstd);
    lean[c] = static_cast<float>(-weight * rstd * rstd * dweight * inverse_rows);
    level[c] = static_cast<float>(-weight * rstd * dbias * inverse_rows);
  }
};

template <Gate G, int N, class T>
__global__ void __launch_bounds__(kNormThreads) input_kernel(Gradient<T> g, Slopes s, T* dx) {
  const int c = norm_channel<N>();
  if (c >= g.channels) return;
  const NormRows own(g.rows, gridDim.y - 1 - blockIdx.y, gridDim.y);
  const auto step = static_cast<std::int64_t>(blockDim.y);
  float mean[N], factor[N], shift[N], slope[N], lean[N], level[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    mean[j] = g.mean[c + j];
    factor[j] = G == Gate::recomputed ? g.factor[c + j] : 0;
    shift[j] = G == Gate::recomputed ? g.shift[c + j] : 0;
    slope[j] = s.slope[c + j];
    lean[j] = s.lean[c + j];
    level[j] = s.level[c + j];
  }
  over_rows(own, [&](std::int64_t r, int valid) {
    Pack<T, N> x[kRowsAhead], dy[kRowsAhead], y[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) {
        const std::int64_t at = (r + k * step) * g.channels + c;
        x[k] = load<N>(g.x + at);
        dy[k] = load<N>(g.dy + at);
        if constexpr (G == Gate::saved) y[k] = load<N>(g.y + at);
      }
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float centred = wide(x[k].v[j]) - mean[j];
          const float d = passed<G>(wide(dy[k].v[j]), centred, factor[j], shift[j], y[k].v[j]);
          x[k].v[j] = narrow<T>(fmaf(d, slope[j], fmaf(centred, lean[j], level[j])));
        }
        store<N>(dx + (r + k * step) * g.channels + c, x[k]);
      }
  });
}

// The number of channels of a thread, as a constant.
template <class T, class F>
void with_channels(int n, F&& f) {
  if (n == kWidest<T>)
    f(std::integral_constant<int, kWidest<T>>{});
  else
    f(std::integral_constant<int, 1>{});
}

}  // namespace trireme::ops::cuda
