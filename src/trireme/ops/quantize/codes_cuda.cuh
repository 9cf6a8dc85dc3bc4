#pragma once
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/quantize/codes.h"

// Codes of a matrix (codes.h) on a GPU, 16 bytes at a time.
namespace trireme::ops::cuda {

struct CodeMatrix {
  const std::byte* codes;
  const float* scales;
  std::int64_t k, group, groups, row_bytes;

  CodeMatrix(const CodeFormat& format, std::int64_t width, const void* code_bytes, const float* scale)
      : codes(static_cast<const std::byte*>(code_bytes)),
        scales(scale),
        k(width),
        group(format.group_of(width)),
        groups(format.groups(width)),
        row_bytes(format.row_bytes(width)) {}

  // Whether 16 bytes of a row lie at a multiple of as many, and each 16 of their elements have one scale.
  bool in_vectors() const { return aligned16(codes) && row_bytes % 16 == 0 && (groups == 1 || group % 16 == 0); }
  CodeMatrix from_row(std::int64_t row) const {
    CodeMatrix rest = *this;
    rest.codes += row * row_bytes;
    rest.scales += row * groups;
    return rest;
  }
  __device__ __forceinline__ float scale_at(std::int64_t row, std::int64_t column) const {
    return scales[row * groups + (groups == 1 ? 0 : column / group)];
  }
};

// Elements that 16 bytes hold, and of which there are 16 at once.
template <int Bits>
inline constexpr int kInVector = 128 / Bits;
template <int Bits>
inline constexpr int kHalves = kInVector<Bits> / 16;

template <int Bits>
__device__ __forceinline__ int code_at(const std::byte* row, std::int64_t column) {
  if constexpr (Bits == 8) return reinterpret_cast<const signed char*>(row)[column];
  const auto in_block = static_cast<int>(column % kPackedCodes);
  const unsigned both = static_cast<unsigned>(row[column / kPackedCodes * (kPackedCodes / 2) + in_block % 16]);
  return static_cast<int>(in_block < 16 ? both & 15U : both >> 4U) - 8;
}

// Four bytes, each a code: of 4 bits, those of the lower or the upper halves, 0 … 15.
template <int Bits>
__device__ __forceinline__ unsigned four_codes(unsigned word, int half) {
  if constexpr (Bits == 8) return word;
  return (half == 0 ? word : word >> 4U) & 0x0f0f0f0fU;
}

// 16 elements out of 16 bytes, without their scale. A byte in the lowest place of 2^23's fraction is added to it; what
// is then taken off leaves a float, exactly.
template <int Bits>
__device__ __forceinline__ void widen(const uint4& vector, int half, float (&out)[16]) {
  const unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned four = Bits == 8 ? words[w] ^ 0x80808080U : four_codes<Bits>(words[w], half);
    constexpr float kZero = 8388608.0F + (Bits == 8 ? 128.0F : 8.0F);
#pragma unroll
    for (unsigned b = 0; b < 4; ++b)
      out[w * 4 + b] = __uint_as_float(__byte_perm(four, 0x4b000000U, 0x7440U + b)) - kZero;
  }
}

// 16 neighbours, read 16 bytes at a time.
template <class T>
__device__ __forceinline__ void load16(const T* p, float (&out)[16]) {
#pragma unroll
  for (int i = 0; i < 16; i += kWidest<T>) {
    const Pack<T, kWidest<T>> pack = load<kWidest<T>>(p + i);
#pragma unroll
    for (int j = 0; j < kWidest<T>; ++j) out[i + j] = wide(pack.v[j]);
  }
}

__device__ __forceinline__ uint4 vector_at(const std::byte* p) { return __ldg(reinterpret_cast<const uint4*>(p)); }

// Calls f with a value whose type has the number of bits.
template <class F>
decltype(auto) with_bits(int bits, F&& f) {
  if (bits == 8) return f(std::integral_constant<int, 8>{});
  return f(std::integral_constant<int, 4>{});
}

// How the product of few rows by a matrix of codes is shared out: a warp takes Rows rows of codes, or with others of
// its block a part of them each, where there are too few rows to fill a GPU.
inline constexpr int kFewWarps = 8;
inline constexpr std::int64_t kFewRowsOfCodes = 8;
inline int warps_to_a_row(std::int64_t n, std::int64_t rows, std::int64_t row_bytes) {
  constexpr std::int64_t kEnough = 4096;
  int split = 1;
  while (split < kFewWarps && split * 32 * 16 < row_bytes && pieces(n, rows) * split < kEnough) split *= 2;
  return split;
}
inline bool fills_gpu(std::int64_t n, std::int64_t k) { return n * k >= std::int64_t{1} << 22; }

// Calls f with the number of rows of x that a kernel is made for, at least m of at most kFewRowsOfCodes.
template <class F>
decltype(auto) with_few_rows(std::int64_t m, F&& f) {
  if (m == 1) return f(std::integral_constant<int, 1>{});
  if (m == 2) return f(std::integral_constant<int, 2>{});
  if (m <= 4) return f(std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 8>{});
}

}  // namespace trireme::ops::cuda
