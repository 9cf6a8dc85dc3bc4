#pragma once
#include <cmath>
#include <limits>

#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

// Rows are summed in double, in chunks that depend on the sizes alone; the chunks' sums are added in order.
struct LossChunks {
  std::int64_t rows = 0;
  std::int64_t size = 1;

  LossChunks() = default;
  LossChunks(std::int64_t row_count, std::int64_t width)
      : rows(row_count), size(std::max<std::int64_t>(1, 2 * simd::kBlock / std::max<std::int64_t>(1, width))) {}

  std::int64_t count() const { return (rows + size - 1) / size; }
  std::size_t workspace() const { return static_cast<std::size_t>(count()) * sizeof(double); }

  // *loss = scale · Σ row(i)
  template <class F>
  void sum(const device::Launch& launch, double scale, float* loss, F&& row) const {
    auto* partial = static_cast<double*>(launch.workspace);
    launch.pool->run(count(), [&](std::int64_t chunk) {
      double total = 0;
      for (std::int64_t i = chunk * size; i < std::min(rows, (chunk + 1) * size); ++i) total += row(i);
      partial[chunk] = total;
    });
    double total = 0;
    for (std::int64_t chunk = 0; chunk < count(); ++chunk) total += partial[chunk];
    *loss = static_cast<float>(scale * total);
  }

  template <class F>
  void each(const device::Launch& launch, F&& row) const {
    launch.pool->ranges(rows, size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) row(i);
    });
  }
};

// The largest of x[0 … n) and Σ exp(factor · (x − largest)). Vectors are summed in f32 over short runs, runs in double.
struct ExpSum {
  float maximum = 0;
  double sum = 0;

  double log_sum(float factor) const {
    return static_cast<double>(factor) * static_cast<double>(maximum) + std::log(sum);
  }
};

template <class T>
ExpSum exp_sum(const T* x, std::int64_t n, float factor = 1) {
  namespace hn = simd::hn;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr std::int64_t kRun = 64 * simd::kLanes;
  simd::Vec top = simd::set(kLowest);
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    top = hn::Max(top, simd::keep_n(simd::load_n(x + i, count), count, kLowest));
  });
  ExpSum result{simd::max(top), 0};
  top = simd::set(result.maximum);
  const simd::Vec scale = simd::set(factor);
  for (std::int64_t begin = 0; begin < n; begin += kRun) {
    const std::int64_t length = std::min(kRun, n - begin);
    simd::Vec sum = simd::zero();
    simd::for_vectors(length, [&](std::int64_t i, std::int64_t count) {
      sum = sum + simd::keep_n(simd::exp(scale * (simd::load_n(x + begin + i, count) - top)), count, 0);
    });
    result.sum += static_cast<double>(simd::sum(sum));
  }
  return result;
}

// Whether a row counts; a target past the vocabulary is an error that names it and its position.
inline bool counts(std::int32_t target, std::int64_t vocab, std::int64_t position) {
  if (target >= vocab) [[unlikely]]
    fail("target {} at position {} is outside a vocabulary of {}", target, position, vocab);
  return target >= 0;
}

}  // namespace trireme::ops
