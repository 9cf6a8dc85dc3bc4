#pragma once
#include <algorithm>
#include <cstdint>

#include "trireme/ops/simd.h"

// Small f32 matrix products on blocks that lie in cache: C (+)= A·B with C [rows, columns], A [rows, k] or its
// transpose in memory, B [k, columns]. All three have a leading dimension; `columns` is a multiple of simd::kLanes, so
// that no access needs a mask. Every element of C is summed in the order of k, whatever the tiling.
namespace trireme::ops::block {

enum class A { plain, transposed };
enum class C { set, add };

// What a run of rows needs of a product with a triangular operand: columns from `column` on, k in [first, last).
struct Extent {
  std::int64_t column = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// A tile of C in registers: 6 rows of 4 vectors take 24 of 32 registers, 6 rows of 2 vectors 12 of 16.
inline constexpr int kRows = 6;
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kVectors = 4;
#else
inline constexpr int kVectors = 2;
#endif

template <A kA, C kC, int kR, int kV>
HWY_INLINE void tile(const float* HWY_RESTRICT a, std::int64_t lda, const float* HWY_RESTRICT b, std::int64_t ldb,
                     float* HWY_RESTRICT c, std::int64_t ldc, std::int64_t first, std::int64_t last) {
  using simd::kLanes;
  simd::Vec sum[kR][kV];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kV; ++v) sum[r][v] = kC == C::add ? simd::load(c + r * ldc + v * kLanes) : simd::zero();
  for (std::int64_t k = first; k < last; ++k) {
    simd::Vec row[kV];
#pragma GCC unroll 8
    for (int v = 0; v < kV; ++v) row[v] = simd::load(b + k * ldb + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const simd::Vec x = simd::set(kA == A::plain ? a[r * lda + k] : a[k * lda + r]);
#pragma GCC unroll 8
      for (int v = 0; v < kV; ++v) sum[r][v] = simd::hn::MulAdd(x, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kV; ++v) simd::store(sum[r][v], c + r * ldc + v * kLanes);
}

// One run of kR rows over columns [extent.column, columns), at most `kVectors` vectors at a time.
template <A kA, C kC, int kR>
HWY_NOINLINE void row_run(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                          std::int64_t ldc, std::int64_t columns, const Extent& extent) {
  using simd::kLanes;
  std::int64_t column = extent.column;
  for (; column + kVectors * kLanes <= columns; column += kVectors * kLanes)
    tile<kA, kC, kR, kVectors>(a, lda, b + column, ldb, c + column, ldc, extent.first, extent.last);
  const std::int64_t left = (columns - column) / kLanes;
  if constexpr (kVectors > 2) {
    if (left == 3) tile<kA, kC, kR, 3>(a, lda, b + column, ldb, c + column, ldc, extent.first, extent.last);
    if (left == 2) tile<kA, kC, kR, 2>(a, lda, b + column, ldb, c + column, ldc, extent.first, extent.last);
  }
  if (left == 1) tile<kA, kC, kR, 1>(a, lda, b + column, ldb, c + column, ldc, extent.first, extent.last);
}

// `extent(begin, end)` tells what rows [begin, end) need.
template <A kA, C kC, class F>
void multiply(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
              std::int64_t rows, std::int64_t columns, F&& extent) {
  const auto run = [&]<int kR>(std::int64_t row) {
    const Extent e = extent(row, row + kR);
    if (e.first >= e.last && kC == C::add) return;
    row_run<kA, kC, kR>(a + (kA == A::plain ? row * lda : row), lda, b, ldb, c + row * ldc, ldc, columns, e);
  };
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) run.template operator()<kRows>(row);
  const std::int64_t left = rows - row;
  if (left & 4) run.template operator()<4>(row), row += 4;
  if (left & 2) run.template operator()<2>(row), row += 2;
  if (left & 1) run.template operator()<1>(row);
}

// dst[c][r] = factor · src[r][c]; rows and columns are multiples of 4.
inline void transpose(const float* HWY_RESTRICT src, std::int64_t lds, std::int64_t rows, std::int64_t columns,
                      float factor, float* HWY_RESTRICT dst, std::int64_t ldd) {
  namespace hn = simd::hn;
  constexpr hn::FixedTag<float, 4> d4;
  constexpr hn::FixedTag<double, 2> d2;
  const auto scale = hn::Set(d4, factor);
  for (std::int64_t r = 0; r < rows; r += 4) {
    for (std::int64_t c = 0; c < columns; c += 4) {
      const float* s = src + r * lds + c;
      const auto r0 = hn::LoadU(d4, s), r1 = hn::LoadU(d4, s + lds);
      const auto r2 = hn::LoadU(d4, s + 2 * lds), r3 = hn::LoadU(d4, s + 3 * lds);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
      float* t = dst + c * ldd + r;
      hn::StoreU(scale * hn::BitCast(d4, hn::InterleaveLower(d2, low01, low23)), d4, t);
      hn::StoreU(scale * hn::BitCast(d4, hn::InterleaveUpper(d2, low01, low23)), d4, t + ldd);
      hn::StoreU(scale * hn::BitCast(d4, hn::InterleaveLower(d2, high01, high23)), d4, t + 2 * ldd);
      hn::StoreU(scale * hn::BitCast(d4, hn::InterleaveUpper(d2, high01, high23)), d4, t + 3 * ldd);
    }
  }
}

}  // namespace trireme::ops::block
