#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "trireme/ops/simd.h"

// Sums of products of bytes. They are whole numbers, so that any order gives the same.
namespace trireme::ops::simd {

namespace detail {

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

// One instruction multiplies 64 pairs and adds them up by fours, where one side has no sign: x goes in as x + 128, and
// 128 · Σw, the same for all rows of x, is taken off at the end.
inline constexpr std::int64_t kBytes = 64;

template <std::size_t M, std::size_t N>
HWY_INLINE void add_bytes(const std::int8_t* x, std::int64_t x_row, const std::int8_t* w, std::int64_t w_row,
                          std::int64_t vectors, std::array<std::array<std::int32_t, N>, M>& sums) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80)), ones = _mm512_set1_epi8(1);
  __m512i sum[M][N], plain[N];
#pragma GCC unroll 8
  for (std::size_t j = 0; j < N; ++j) {
    plain[j] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (std::size_t i = 0; i < M; ++i) sum[i][j] = _mm512_setzero_si512();
  }
  for (std::int64_t v = 0; v < vectors; ++v) {
    __m512i right[N];
#pragma GCC unroll 8
    for (std::size_t j = 0; j < N; ++j) {
      right[j] = _mm512_loadu_si512(w + static_cast<std::int64_t>(j) * w_row + v * kBytes);
      plain[j] = _mm512_dpbusd_epi32(plain[j], ones, right[j]);
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < M; ++i) {
      const __m512i left =
          _mm512_xor_si512(_mm512_loadu_si512(x + static_cast<std::int64_t>(i) * x_row + v * kBytes), flip);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < N; ++j) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], left, right[j]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t j = 0; j < N; ++j) {
    const std::int32_t shift = 128 * _mm512_reduce_add_epi32(plain[j]);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < M; ++i) sums[i][j] += _mm512_reduce_add_epi32(sum[i][j]) - shift;
  }
}

#else

// Bytes are widened to 16 bits, whose products are added in pairs.
using WideTag = hn::ScalableTag<std::int16_t>;
using ByteTag = hn::Rebind<std::int8_t, WideTag>;
inline constexpr std::int64_t kBytes = static_cast<std::int64_t>(hn::MaxLanes(WideTag{}));

template <std::size_t M, std::size_t N>
HWY_INLINE void add_bytes(const std::int8_t* x, std::int64_t x_row, const std::int8_t* w, std::int64_t w_row,
                          std::int64_t vectors, std::array<std::array<std::int32_t, N>, M>& sums) {
  using Sum = hn::Vec<IntTag>;
  Sum sum[M][N], rest[M][N];  // some instruction sets add the halves of a vector apart
#pragma GCC unroll 8
  for (std::size_t i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < N; ++j) sum[i][j] = rest[i][j] = hn::Zero(IntTag{});
  for (std::int64_t v = 0; v < vectors; ++v) {
    hn::Vec<WideTag> right[N];
#pragma GCC unroll 8
    for (std::size_t j = 0; j < N; ++j)
      right[j] = hn::PromoteTo(WideTag{}, hn::LoadU(ByteTag{}, w + static_cast<std::int64_t>(j) * w_row + v * kBytes));
#pragma GCC unroll 8
    for (std::size_t i = 0; i < M; ++i) {
      const auto left =
          hn::PromoteTo(WideTag{}, hn::LoadU(ByteTag{}, x + static_cast<std::int64_t>(i) * x_row + v * kBytes));
#pragma GCC unroll 8
      for (std::size_t j = 0; j < N; ++j)
        sum[i][j] = hn::ReorderWidenMulAccumulate(IntTag{}, left, right[j], sum[i][j], rest[i][j]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < N; ++j)
      sums[i][j] += hn::GetLane(hn::SumOfLanes(IntTag{}, hn::Add(sum[i][j], rest[i][j])));
}

#endif

// The few bytes behind the last whole vector. (Not inlined: the compiler would vectorise it for all pairs of rows.)
HWY_NOINLINE inline std::int32_t dot_rest(const std::int8_t* x, const std::int8_t* w, std::int64_t count) {
  std::int32_t sum = 0;
  for (std::int64_t c = 0; c < count; ++c) sum += std::int32_t{x[c]} * std::int32_t{w[c]};
  return sum;
}

}  // namespace detail

// sums[i][j] = Σ x[i] · w[j] over `count` bytes of M rows of x and N rows of w.
template <std::size_t M, std::size_t N>
HWY_INLINE std::array<std::array<std::int32_t, N>, M> dot_bytes(const std::int8_t* x, std::int64_t x_row,
                                                                const std::int8_t* w, std::int64_t w_row,
                                                                std::int64_t count) {
  std::array<std::array<std::int32_t, N>, M> sums{};
  const std::int64_t vectors = count / detail::kBytes;
  if (vectors > 0) detail::add_bytes<M, N>(x, x_row, w, w_row, vectors, sums);
  const std::int64_t done = vectors * detail::kBytes;
  if (done < count)
    for (std::size_t i = 0; i < M; ++i)
      for (std::size_t j = 0; j < N; ++j)
        sums[i][j] += detail::dot_rest(x + static_cast<std::int64_t>(i) * x_row + done,
                                       w + static_cast<std::int64_t>(j) * w_row + done, count - done);
  return sums;
}

}  // namespace trireme::ops::simd
