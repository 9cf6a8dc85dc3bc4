#pragma once
#include <cmath>
#include <cstddef>

#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/attention/block_gemm.h"

// What the forward and the backward kernel share. Both work on blocks of kBlock queries by kBlock keys and hold scores
// transposed, [key, query]: the softmax of a query then runs down a lane, without horizontal reductions, and only the
// queries have to be transposed, once per block. Scores are kept in units of log 2.
namespace trireme::ops::attend {

inline constexpr std::int64_t kBlock = 64;
inline constexpr float kLog2e = 1.44269504088896341F;
inline constexpr float kLn2 = 0.693147180559945309F;
inline constexpr int kQueryVectors = static_cast<int>(kBlock / simd::kLanes);
static_assert(kBlock % simd::kLanes == 0);

inline std::int64_t blocks_of(std::int64_t n) { return (n + kBlock - 1) / kBlock; }
inline std::int64_t padded(std::int64_t dim) { return (dim + simd::kLanes - 1) / simd::kLanes * simd::kLanes; }

// Workspaces are planned for the longest vectors that there are, whatever these kernels were compiled for.
inline constexpr std::int64_t kMaxLanes = 16;
static_assert(kMaxLanes % simd::kLanes == 0);
inline std::int64_t padded_max(std::int64_t dim) { return (dim + kMaxLanes - 1) / kMaxLanes * kMaxLanes; }

// 2^x to about 1e-7 relative for x up to about 100; 0 below -126. NaN stays NaN.
HWY_INLINE simd::Vec exp2(simd::Vec x) {
  namespace hn = simd::hn;
  constexpr simd::detail::IntTag integers;
  // Adding 1.5·2^23 rounds to an integer n and leaves it in the low bits; 127 more make that 2^n's exponent.
  const simd::Vec magic = simd::set(12582912.0F + 127.0F);
  const simd::Vec shifted = x + magic;
  const simd::Vec f = x - (shifted - magic);
  const simd::Vec p = simd::polynomial(f, 1.0F, 0.693147182F, 0.240226477F, 0.0555033237F, 0.00961843692F,
                                       0.0013398875F, 0.00015353362F);
  const simd::Vec power = hn::BitCast(simd::kTag, hn::ShiftLeft<23>(hn::BitCast(integers, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, simd::set(-126.0F)), p * power);
}

// Which keys of a block its queries see: key j of the block is visible to query i of the block when j <= i + shift and,
// with documents, j >= first[i].
struct Visible {
  std::int64_t shift = 0;
  bool masked = false;           // some pair of the block is hidden
  const float* first = nullptr;  // [kBlock]; null: from the first key of the block on

  // Scores of keys [begin, end): queries from here on see some of them.
  block::Extent scores(std::int64_t begin, std::int64_t dim) const {
    const std::int64_t query = masked ? std::clamp<std::int64_t>(begin - shift, 0, kBlock) : 0;
    return {query / simd::kLanes * simd::kLanes, 0, dim};
  }
  // Sums over keys for queries [begin, end).
  block::Extent over_keys(std::int64_t end, std::int64_t keys) const {
    return {0, 0, masked ? std::clamp<std::int64_t>(end + shift, 0, keys) : keys};
  }
  // Sums over queries for keys [begin, end).
  block::Extent over_queries(std::int64_t begin, std::int64_t queries) const {
    return {0, masked ? std::clamp<std::int64_t>(begin - shift, 0, queries) : 0, queries};
  }
};

inline Visible visible(const AttentionShape& s, std::int64_t query, std::int64_t key, std::int64_t keys) {
  const std::int64_t shift = query + s.shift() - key;
  return {shift, s.causal && shift < keys - 1};
}

// The same with documents: `starts` of the n queries of the block, or null; `first` is where Visible::first may lie.
inline Visible visible(const AttentionShape& s, std::int64_t query, std::int64_t key, std::int64_t keys,
                       const std::int32_t* starts, std::int64_t n, float (&first)[kBlock]) {
  Visible seen = visible(s, query, key, keys);
  if (starts == nullptr || starts[n - 1] <= key) return seen;
  for (std::int64_t i = 0; i < kBlock; ++i) first[i] = static_cast<float>(starts[std::min(i, n - 1)] - key);
  seen.masked = true;
  seen.first = first;
  return seen;
}

// The first block of keys that some query of a block sees: where its first document begins.
inline std::int64_t first_key(const std::int32_t* starts) {
  return starts == nullptr ? 0 : starts[0] / kBlock * kBlock;
}

// Keys that some query of [query, query + queries) sees.
inline std::int64_t keys_seen(const AttentionShape& s, std::int64_t query, std::int64_t queries) {
  return s.causal ? std::min(s.keys, query + queries + s.shift()) : s.keys;
}

// The lanes of query vector v that see key j.
HWY_INLINE auto sees(std::int64_t j, const Visible& visible, int v) {
  namespace hn = simd::hn;
  const simd::Vec query = hn::Iota(simd::kTag, static_cast<float>(v * simd::kLanes));
  const auto causal = hn::Ge(query, simd::set(static_cast<float>(j - visible.shift)));
  if (visible.first == nullptr) return causal;
  return hn::And(causal, hn::Ge(simd::set(static_cast<float>(j)), simd::load(visible.first + v * simd::kLanes)));
}

// dst[r][0 … padded(dim)) = factor · src[r], zeros past `dim` and in rows [rows, padded_rows).
template <class T>
void pack(const T* src, std::int64_t stride, std::int64_t rows, std::int64_t padded_rows, std::int64_t dim,
          float factor, float* dst) {
  const std::int64_t width = padded(dim);
  const simd::Vec scale = simd::set(factor);
  for (std::int64_t r = 0; r < rows; ++r)
    simd::for_vectors(dim, [&](std::int64_t i, std::int64_t n) {
      simd::store(scale * simd::load_n(src + r * stride + i, n), dst + r * width + i);
    });
  std::fill(dst + rows * width, dst + padded_rows * width, 0.0F);
}

// dst[r] = factor · src[r] for rows of `dim` elements.
template <class T>
void unpack(const float* src, std::int64_t rows, std::int64_t dim, float factor, T* dst, std::int64_t stride) {
  const std::int64_t width = padded(dim);
  const simd::Vec scale = simd::set(factor);
  for (std::int64_t r = 0; r < rows; ++r)
    simd::for_vectors(dim, [&](std::int64_t i, std::int64_t n) {
      simd::store_n(scale * simd::load(src + r * width + i), dst + r * stride + i, n);
    });
}

// Cuts one worker's scratch into pieces; every piece is 64-byte aligned because the extents are multiples of 16 floats
// or are rounded up to one.
class Scratch {
 public:
  explicit Scratch(float* base) : base_(base) {}
  float* take(std::int64_t floats) {
    float* piece = base_ + used_;
    used_ += (floats + 15) / 16 * 16;
    return piece;
  }
  std::size_t used() const { return static_cast<std::size_t>(used_); }

 private:
  float* base_;
  std::int64_t used_ = 0;
};

}  // namespace trireme::ops::attend
