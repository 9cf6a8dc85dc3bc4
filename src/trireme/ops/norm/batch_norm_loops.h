#pragma once
#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/ops/norm/row_norm.h"
#include "trireme/ops/simd.h"

// The loops of batch normalisation, shared by the op and by its parts for rows that several ranks have.
namespace trireme::ops::batch_norm_loops {

// Channels handled together: their running sums fit with a block of rows in the first cache.
inline constexpr std::int64_t kChannels = 512;

// Rows of a block, over which f32 sums are taken before they join the f64 ones.
inline std::int64_t block_rows(std::int64_t channels) {
  return std::clamp<std::int64_t>(simd::kBlock / std::min(channels, kChannels), 8, 256);
}

inline RowChunks chunks_of(const ir::KernelSpec& spec) {
  const std::int64_t channels = std::max<std::int64_t>(1, spec.inputs[0].shape.back());
  return {spec.inputs[0].elements() / channels, channels};
}

// Per chunk and channel: two f64 numbers, laid out as [chunk][which][channel].
inline std::size_t pair_bytes(const ir::KernelSpec& spec) {
  const RowChunks chunks = chunks_of(spec);
  return static_cast<std::size_t>(chunks.chunks * chunks.width) * 2 * sizeof(double);
}

// Runs body(chunk, first channel, channel count, first row, last row, sums) over all chunks and channel groups; `sums`
// are the chunk's two f64 arrays of `channels` numbers, of which the body fills its channels.
template <class F>
void over_chunks(const device::Launch& launch, const RowChunks& chunks, F&& body) {
  const std::int64_t channels = chunks.width;
  const std::int64_t groups = (channels + kChannels - 1) / kChannels;
  auto* pairs = static_cast<double*>(launch.workspace);
  launch.pool->run(chunks.chunks * groups, [&](std::int64_t task) {
    const std::int64_t chunk = task / groups;
    const std::int64_t first = task % groups * kChannels;
    body(first, std::min(kChannels, channels - first), chunks.begin(chunk), chunks.begin(chunk + 1),
         pairs + chunk * 2 * channels);
  });
}

// Mean and sum of squared deviations of each channel over rows [begin, end). Each block of rows is centred on its own
// mean, and blocks are combined by Chan's formula in f64: no digits are lost however large the mean is.
template <class T>
void chunk_statistics(const T* x, std::int64_t channels, std::int64_t first, std::int64_t count, std::int64_t begin,
                      std::int64_t end, double* means, double* squares) {
  alignas(64) float center[kChannels];
  alignas(64) float deviation[kChannels];
  alignas(64) float square[kChannels];
  std::fill(means + first, means + first + count, 0.0);
  std::fill(squares + first, squares + first + count, 0.0);
  const std::int64_t step = block_rows(channels);
  for (std::int64_t from = begin; from < end; from += step) {
    const std::int64_t to = std::min(end, from + step);
    const auto rows = static_cast<float>(to - from);
    std::fill(center, center + count, 0.0F);
    for (std::int64_t row = from; row < to; ++row)
      simd::map(
          count, center, [](simd::Vec sum, simd::Vec v) { return sum + v; }, static_cast<const float*>(center),
          x + row * channels + first);
    for (std::int64_t c = 0; c < count; ++c) center[c] /= rows;
    std::fill(deviation, deviation + count, 0.0F);
    std::fill(square, square + count, 0.0F);
    for (std::int64_t row = from; row < to; ++row)
      simd::for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
        const simd::Vec d = simd::load_n(x + row * channels + first + i, lanes) - simd::load_n(center + i, lanes);
        simd::store_n(simd::load_n(deviation + i, lanes) + d, deviation + i, lanes);
        simd::store_n(simd::hn::MulAdd(d, d, simd::load_n(square + i, lanes)), square + i, lanes);
      });
    const auto before = static_cast<double>(from - begin);
    const auto added = static_cast<double>(rows);
    for (std::int64_t c = 0; c < count; ++c) {
      const double sum = deviation[c];
      const double mean = center[c] + sum / added;
      const double delta = mean - means[first + c];
      means[first + c] += delta * added / (before + added);
      squares[first + c] += square[c] - sum * sum / added + delta * delta * before * added / (before + added);
    }
  }
}

// Every chunk's statistics of every channel, in the workspace.
template <class T>
void statistics(const device::Launch& launch, const RowChunks& chunks, const T* x) {
  over_chunks(launch, chunks,
              [&](std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end, double* pair) {
                chunk_statistics(x, chunks.width, first, count, begin, end, pair, pair + chunks.width);
              });
}

// Joins the chunks' statistics in order: the channel's mean and its sum of squared deviations.
inline std::pair<double, double> joined(const double* pairs, const RowChunks& chunks, std::int64_t channel) {
  double mean = 0;
  double squares = 0;
  for (std::int64_t chunk = 0; chunk < chunks.chunks; ++chunk) {
    const double* pair = pairs + chunk * 2 * chunks.width;
    const auto before = static_cast<double>(chunks.begin(chunk));
    const auto added = static_cast<double>(chunks.begin(chunk + 1) - chunks.begin(chunk));
    if (added == 0) continue;
    const double delta = pair[channel] - mean;
    mean += delta * added / (before + added);
    squares += pair[chunks.width + channel] + delta * delta * before * added / (before + added);
  }
  return {mean, squares};
}

// Calls body(row, first row of x) for every row, in blocks.
template <class F>
void over_rows(const device::Launch& launch, const RowChunks& chunks, F&& body) {
  launch.pool->ranges(chunks.rows, std::max<std::int64_t>(1, simd::kBlock / chunks.width),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t row = begin; row < end; ++row) body(row * chunks.width);
                      });
}

// What follows from a channel's mean and variance, for `apply`.
struct Normalisation {
  float* mean;
  float* rstd;
  float* factor;
  float* shift;

  void set(std::int64_t c, double center, double variance, double eps, const float* weight, const float* bias) const {
    const double deviation = std::sqrt(variance + eps);
    mean[c] = static_cast<float>(center);
    rstd[c] = static_cast<float>(1 / deviation);
    // What rounding took from the mean goes into the shift.
    factor[c] = static_cast<float>(weight[c] / deviation);
    shift[c] = static_cast<float>(bias[c] - (center - mean[c]) * weight[c] / deviation);
  }
};

// `residual` may be null.
template <class T>
void apply(const device::Launch& launch, const RowChunks& chunks, const T* x, const Normalisation& n, const T* residual,
           bool relu, T* y) {
  using simd::Vec;
  const float* const mean = n.mean;
  const float* const factor = n.factor;
  const float* const shift = n.shift;
  const auto finished = [relu](Vec v) { return relu ? simd::hn::IfThenZeroElse(simd::hn::Lt(v, simd::zero()), v) : v; };
  over_rows(launch, chunks, [&](std::int64_t at) {
    if (residual == nullptr)
      simd::map(
          chunks.width, y + at, [&](Vec v, Vec m, Vec f, Vec b) { return finished(simd::hn::MulAdd(v - m, f, b)); },
          x + at, mean, factor, shift);
    else
      simd::map(
          chunks.width, y + at,
          [&](Vec v, Vec m, Vec f, Vec b, Vec r) { return finished(simd::hn::MulAdd(v - m, f, b) + r); }, x + at, mean,
          factor, shift, residual + at);
  });
}

// What of the gradient reaches the normalisation.
template <class T>
struct Incoming {
  const T* dy;
  const T* more = nullptr;      // null, or added
  const T* y = nullptr;         // null, or positive where it passes
  const float* bias = nullptr;  // null, or the gate is recomputed with these three
  const float* weight = nullptr;
  const float* rstd = nullptr;

  // Of channels [c, c + lanes) of the row at `at`; `centred` is x − mean.
  HWY_INLINE simd::Vec operator()(std::int64_t at, std::int64_t c, std::int64_t lanes, simd::Vec centred) const {
    simd::Vec d = simd::load_n(dy + at + c, lanes);
    if (more != nullptr) d = d + simd::load_n(more + at + c, lanes);
    if (y != nullptr) d = simd::hn::IfThenElseZero(simd::hn::Gt(simd::load_n(y + at + c, lanes), simd::zero()), d);
    if (bias != nullptr) {
      const simd::Vec factor = simd::load_n(weight + c, lanes) * simd::load_n(rstd + c, lanes);
      const simd::Vec value = simd::hn::MulAdd(centred, factor, simd::load_n(bias + c, lanes));
      d = simd::hn::IfThenElseZero(simd::hn::Gt(value, simd::zero()), d);
    }
    return d;
  }
};

// The gradients of weight and bias: sums over the rows. What passed the gate is left in `total`, if that is given.
template <class T>
void gradient_sums(const device::Launch& launch, const RowChunks& chunks, const T* x, const float* mean,
                   const float* rstd, const Incoming<T>& incoming, T* total, float* dweight, float* dbias) {
  const std::int64_t channels = chunks.width;
  over_chunks(launch, chunks,
              [&](std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end, double* pair) {
                alignas(64) float sum[kChannels];
                alignas(64) float product[kChannels];
                std::fill(pair + first, pair + first + count, 0.0);
                std::fill(pair + channels + first, pair + channels + first + count, 0.0);
                const std::int64_t step = block_rows(channels);
                for (std::int64_t from = begin; from < end; from += step) {
                  std::fill(sum, sum + count, 0.0F);
                  std::fill(product, product + count, 0.0F);
                  for (std::int64_t row = from; row < std::min(end, from + step); ++row) {
                    const std::int64_t at = row * channels;
                    simd::for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
                      const std::int64_t c = first + i;
                      const simd::Vec centred = simd::load_n(x + at + c, lanes) - simd::load_n(mean + c, lanes);
                      simd::Vec d = incoming(at, c, lanes, centred);
                      if (total != nullptr) {
                        simd::store_n(d, total + at + c, lanes);
                        d = simd::load_n(total + at + c, lanes);
                      }
                      simd::store_n(simd::load_n(sum + i, lanes) + d, sum + i, lanes);
                      simd::store_n(simd::hn::MulAdd(d, centred, simd::load_n(product + i, lanes)), product + i, lanes);
                    });
                  }
                  for (std::int64_t c = 0; c < count; ++c) {
                    pair[first + c] += sum[c];
                    pair[channels + first + c] += product[c];
                  }
                }
              });
  const auto* pairs = static_cast<const double*>(launch.workspace);
  launch.pool->ranges(channels, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      double sum = 0;
      double product = 0;
      for (std::int64_t chunk = 0; chunk < chunks.chunks; ++chunk) {
        sum += pairs[chunk * 2 * channels + c];
        product += pairs[chunk * 2 * channels + channels + c];
      }
      dbias[c] = static_cast<float>(sum);
      dweight[c] = static_cast<float>(product * rstd[c]);
    }
  });
}

// `dweight` and `dbias` are over all `rows` of which the statistics were taken; 0: they were given.
template <class T>
void gradient_input(const device::Launch& launch, const RowChunks& chunks, const T* x, const float* weight,
                    const float* mean, const float* rstd, const Incoming<T>& incoming, const float* dweight,
                    const float* dbias, std::int64_t rows, T* dx) {
  using simd::Vec;
  const Vec inverse = simd::set(rows > 0 ? 1.0F / static_cast<float>(rows) : 0.0F);
  over_rows(launch, chunks, [&](std::int64_t at) {
    simd::for_vectors(chunks.width, [&](std::int64_t c, std::int64_t lanes) {
      const Vec centred = simd::load_n(x + at + c, lanes) - simd::load_n(mean + c, lanes);
      const Vec r = simd::load_n(rstd + c, lanes);
      const Vec common =
          simd::hn::MulAdd(centred * r, simd::load_n(dweight + c, lanes), simd::load_n(dbias + c, lanes));
      const Vec d = incoming(at, c, lanes, centred);
      simd::store_n(simd::hn::NegMulAdd(common, inverse, d) * r * simd::load_n(weight + c, lanes), dx + at + c, lanes);
    });
  });
}

}  // namespace trireme::ops::batch_norm_loops
