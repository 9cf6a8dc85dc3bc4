#pragma once
#include "trireme/ops/norm/batch_norm_rows.cuh"

// The kernels of batch normalisation, shared by the op and by its parts for rows that several ranks have.
//
// A thread has N neighbouring channels of every so many rows, so that what belongs to a channel stays in registers.
// Sums over the rows are taken in two stages: a block's rows, then the blocks in order. The kernels that come second go
// through the rows from the end: what the first ones read last may still be in the cache.
namespace trireme::ops::cuda {

// Per channel and chunk: a number near the mean, how far the mean is from it, and the squared deviations from the mean.
// Laid out as [chunk][which][channel].
template <int N, class T>
__global__ void __launch_bounds__(kNormThreads, 2)
    statistics_kernel(const T* x, std::int64_t rows, int channels, float* partials) {
  __shared__ float shared_mean[kNormThreads][N + 1];
  __shared__ float shared_squares[kNormThreads][N + 1];
  __shared__ float shared_count[kNormThreads];
  const int c = norm_channel<N>();
  const NormRows own(rows, blockIdx.y, gridDim.y);
  const auto step = static_cast<std::int64_t>(blockDim.y);
  float base[N] = {}, sum[N] = {}, squares[N] = {};
  float count = 0;
  const std::int64_t first = own.begin + threadIdx.y;
  if (c < channels && first < own.end) {
    // Read again below, from the cache: kept until then they would take the registers of loads on their way.
    float some = 0;
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (first + k * step < own.end) {
        Row<N, T> row;
        row.load(x + (first + k * step) * channels + c);
#pragma unroll
        for (int j = 0; j < N; ++j) base[j] += row[j];
        some += 1;
      }
#pragma unroll
    for (int j = 0; j < N; ++j) base[j] /= some;
    over_rows<kAlone>(own, [&](std::int64_t r, int valid) {
      Row<N, T> row[kAlone];
#pragma unroll
      for (int k = 0; k < kAlone; ++k)
        if (k < valid) row[k].load(x + (r + k * step) * channels + c);
      count += static_cast<float>(valid);
#pragma unroll
      for (int k = 0; k < kAlone; ++k)
        if (k < valid)
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float d = row[k][j] - base[j];
            sum[j] += d;
            squares[j] = fmaf(d, d, squares[j]);
          }
    });
  }
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

// Blocks that join chunks have 8 channels and read many chunks at once: there are few of them, and nothing else runs.
inline constexpr int kJoinChannels = 8;
inline constexpr int kJoinThreads = 1024;
inline int join_blocks(int channels) { return (channels + kJoinChannels - 1) / kJoinChannels; }
__device__ __forceinline__ int join_channel() {
  return static_cast<int>(blockIdx.x) * kJoinChannels + static_cast<int>(threadIdx.x) % kJoinChannels;
}

// Sums of a channel over the chunks; true for the thread that gets the channel's.
template <int Count, class F>
__device__ __forceinline__ bool join_chunks(std::int64_t chunks, double (&total)[Count], F&& term) {
  constexpr int kAtOnce = kJoinThreads / kJoinChannels;
  constexpr int kWarps = kJoinThreads / 32;
  __shared__ double shared[Count][kWarps][kJoinChannels];
#pragma unroll
  for (int i = 0; i < Count; ++i) total[i] = 0;
#pragma unroll 4
  for (std::int64_t k = threadIdx.x / kJoinChannels; k < chunks; k += kAtOnce) term(k, total);
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    total[i] += __shfl_xor_sync(0xffffffffU, total[i], 8);
    total[i] += __shfl_xor_sync(0xffffffffU, total[i], 16);
    if (threadIdx.x % 32 < kJoinChannels) shared[i][threadIdx.x / 32][threadIdx.x % 32] = total[i];
  }
  __syncthreads();
  if (threadIdx.x >= kJoinChannels) return false;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    total[i] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total[i] += shared[i][w][threadIdx.x];
  }
  return true;
}

struct Moments {
  double mean, squares;
};
// Of a channel over all rows; true for the thread that gets them.
__device__ __forceinline__ bool joined_moments(const float* partials, std::int64_t rows, std::int64_t chunks,
                                               int channels, Moments& m) {
  const int c = min(join_channel(), channels - 1);
  const double reference = static_cast<double>(partials[c]) + static_cast<double>(partials[channels + c]);
  const auto each = static_cast<double>(rows / chunks);  // as NormRows has it
  const std::int64_t rest = rows % chunks;
  double total[2];
  const bool mine = join_chunks(chunks, total, [&](std::int64_t k, double(&sums)[2]) {
    const float* const p = partials + k * 3 * channels + c;
    const double count = k < rest ? each + 1 : each;
    const double delta = static_cast<double>(p[0]) + static_cast<double>(p[channels]) - reference;
    sums[0] += count * delta;
    sums[1] += static_cast<double>(p[2 * channels]) + count * delta * delta;
  });
  const auto n = static_cast<double>(rows);
  m = {reference + total[0] / n, fmax(0.0, total[1] - total[0] * total[0] / n)};
  return mine && join_channel() < channels;
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
  over_rows<kRowsAhead>(own, [&](std::int64_t r, int valid) {
    Row<N, T> row[kRowsAhead], more[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) row[k].load(a.x + (r + k * step) * a.channels + c);
    if (a.residual != nullptr)
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) more[k].load(a.residual + (r + k * step) * a.channels + c);
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N; ++j) {
          v[j] = fmaf(row[k][j] - mean[j], factor[j], shift[j]);
          if (a.residual != nullptr) v[j] += more[k][j];
          if (Relu && v[j] < 0) v[j] = 0;
        }
        row[k].set(v);
        row[k].store(a.y + (r + k * step) * a.channels + c);
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
  const float* mean;
  const float *weight, *rstd, *bias;  // Gate::recomputed
  T* total;                           // null, or where what comes through the gate is left
  std::int64_t rows;
  int channels;
};

// The gradient that comes through, for one value.
template <Gate G>
__device__ __forceinline__ float passed(float d, float centred, float factor, float shift, float y) {
  if constexpr (G == Gate::recomputed) return fmaf(centred, factor, shift) > 0 ? d : 0.0F;
  if constexpr (G == Gate::saved) return y > 0 ? d : 0.0F;
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
      factor[j] = G == Gate::recomputed ? g.weight[c + j] * g.rstd[c + j] : 0;
      shift[j] = G == Gate::recomputed ? g.bias[c + j] : 0;
    }
    over_rows<kRowsAhead>(own, [&](std::int64_t r, int valid) {
      Row<N, T> x[kRowsAhead], dy[kRowsAhead], y[kRowsAhead], more[kRowsAhead];
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) {
          const std::int64_t at = (r + k * step) * g.channels + c;
          x[k].load(g.x + at);
          dy[k].load(g.dy + at);
          if constexpr (G == Gate::saved) y[k].load(g.y + at);
        }
      if (g.more != nullptr)
#pragma unroll
        for (int k = 0; k < kRowsAhead; ++k)
          if (k < valid) more[k].load(g.more + (r + k * step) * g.channels + c);
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k)
        if (k < valid) {
          float d[N];
#pragma unroll
          for (int j = 0; j < N; ++j) {
            d[j] = dy[k][j];
            if (g.more != nullptr) d[j] += more[k][j];
            d[j] = passed<G>(d[j], x[k][j] - mean[j], factor[j], shift[j], G == Gate::saved ? y[k][j] : 0.0F);
          }
          if (g.total != nullptr) {
            dy[k].set(d);
            dy[k].store(g.total + (r + k * step) * g.channels + c);
#pragma unroll
            for (int j = 0; j < N; ++j) d[j] = dy[k][j];
          }
#pragma unroll
          for (int j = 0; j < N; ++j) {
            sum[j] += d[j];
            product[j] = fmaf(d[j], x[k][j] - mean[j], product[j]);
          }
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
    factor[j] = G == Gate::recomputed ? g.weight[c + j] * g.rstd[c + j] : 0;
    shift[j] = G == Gate::recomputed ? g.bias[c + j] : 0;
    slope[j] = s.slope[c + j];
    lean[j] = s.lean[c + j];
    level[j] = s.level[c + j];
  }
  over_rows<kRowsAhead>(own, [&](std::int64_t r, int valid) {
    Row<N, T> x[kRowsAhead], dy[kRowsAhead], y[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) {
        const std::int64_t at = (r + k * step) * g.channels + c;
        x[k].load(g.x + at);
        dy[k].load(g.dy + at);
        if constexpr (G == Gate::saved) y[k].load(g.y + at);
      }
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (k < valid) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float centred = x[k][j] - mean[j];
          const float d = passed<G>(dy[k][j], centred, factor[j], shift[j], G == Gate::saved ? y[k][j] : 0.0F);
          v[j] = fmaf(d, slope[j], fmaf(centred, lean[j], level[j]));
        }
        x[k].set(v);
        x[k].store(dx + (r + k * step) * g.channels + c);
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
