#pragma once
#include <cstddef>

#include "trireme/ops/quantize/codes.h"
#include "trireme/ops/simd.h"

// Codes of a row (codes.h) as f32 vectors, still without their scale.
namespace trireme::ops::simd {

namespace detail {

using CodeTag = hn::Rebind<std::int8_t, Tag>;
using PairTag = hn::Rebind<std::uint8_t, Tag>;

HWY_INLINE Vec code_vector(hn::Vec<CodeTag> codes) { return hn::ConvertTo(kTag, hn::PromoteTo(IntTag{}, codes)); }

struct CodePair {
  Vec low, high;
};

// The two codes of each of kLanes bytes.
HWY_INLINE CodePair code_pairs(const std::uint8_t* bytes) {
#if HWY_TARGET <= HWY_AVX3
  // A permutation looks at four bits of each index, so the bytes need no masks.
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  return {Vec{_mm512_permutexvar_ps(wide, values)}, Vec{_mm512_permutexvar_ps(_mm512_srli_epi32(wide, 4), values)}};
#else
  constexpr BitsTag bits;
  const auto wide = hn::PromoteTo(bits, hn::LoadU(PairTag{}, bytes));
  const auto value = [](auto code)
                         HWY_ATTR { return hn::ConvertTo(kTag, hn::BitCast(IntTag{}, code)) - hn::Set(kTag, 8.0F); };
  return {value(hn::And(wide, hn::Set(bits, 15U))), value(hn::ShiftRight<4>(wide))};
#endif
}

}  // namespace detail

// The first n of kLanes codes of 8 bits, as load_n has other types.
HWY_INLINE Vec load_n(const std::int8_t* codes, std::int64_t n) {
  if (n == kLanes) return detail::code_vector(hn::LoadU(detail::CodeTag{}, codes));
  std::int8_t few[static_cast<std::size_t>(kLanes)] = {};
  std::memcpy(few, codes, static_cast<std::size_t>(n));
  return detail::code_vector(hn::LoadU(detail::CodeTag{}, few));
}

// Calls body(column, count, vector, slot) for the columns [begin, end) of a row: count is kLanes, or fewer at the end
// of a row of 8 bits. Slots 0 … 3 take turns, for sums that do not wait for each other. With 4 bits, begin and end are
// multiples of 32.
template <int Bits, class F>
HWY_INLINE void for_codes(const std::byte* row, std::int64_t begin, std::int64_t end, F&& body) {
  if constexpr (Bits == 8) {
    const auto* codes = reinterpret_cast<const std::int8_t*>(row);
    std::int64_t at = begin;
    for (; at + 4 * kLanes <= end; at += 4 * kLanes)
      for (std::size_t s = 0; s < 4; ++s) {
        const std::int64_t here = at + static_cast<std::int64_t>(s) * kLanes;
        body(here, kLanes, detail::code_vector(hn::LoadU(detail::CodeTag{}, codes + here)), s);
      }
    for (std::size_t s = 0; at < end; at += kLanes, ++s) {
      const std::int64_t count = std::min(kLanes, end - at);
      if (count == kLanes) {
        body(at, count, detail::code_vector(hn::LoadU(detail::CodeTag{}, codes + at)), s);
        continue;
      }
      std::int8_t last[static_cast<std::size_t>(kLanes)] = {};
      std::memcpy(last, codes + at, static_cast<std::size_t>(count));
      body(at, count, detail::code_vector(hn::LoadU(detail::CodeTag{}, last)), s);
    }
  } else {
    constexpr std::int64_t kHalf = kPackedCodes / 2;
    static_assert(kHalf % kLanes == 0);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
    const auto block = [&](std::int64_t at, std::size_t first) HWY_ATTR {
      for (std::int64_t j = 0; j < kHalf; j += kLanes) {
        const detail::CodePair pair = detail::code_pairs(bytes + at / 2 + j);
        body(at + j, kLanes, pair.low, first);
        body(at + kHalf + j, kLanes, pair.high, first + 1);
      }
    };
    std::int64_t at = begin;
    for (; at + 2 * kPackedCodes <= end; at += 2 * kPackedCodes) {
      block(at, 0);
      block(at + kPackedCodes, 2);
    }
    if (at < end) block(at, 0);
  }
}

}  // namespace trireme::ops::simd
