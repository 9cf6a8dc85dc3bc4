#pragma once
#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"
#include "trireme/ops/cuda/warp_products.cuh"

// What the kernels of attention for whatever types and sizes share. A block of threads has a block of rows that stays
// in shared memory, sixteen rows to a warp, and passes by blocks of other rows; scores are never in memory.
namespace trireme::ops::cuda {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = 32 * kAttentionWarps;
constexpr std::int64_t kMaxDim = 256;

struct AttentionSizes {
  std::int64_t queries, keys, heads, group;  // group: heads of q to one of k
  int dim;
  bool causal;
  bool whole;  // rows are read 16 bytes at a time
  float scale;
  const std::int32_t* starts;  // [batch, queries]; null: every query sees from the first key on

  AttentionSizes(const AttentionShape& s, std::size_t element, const device::Launch& launch,
                 const std::int32_t* first_keys = nullptr)
      : queries(s.queries),
        keys(s.keys),
        heads(s.heads),
        group(s.heads / s.key_heads),
        dim(static_cast<int>(s.dim)),
        causal(s.causal),
        whole(static_cast<std::size_t>(s.dim) * element % 16 == 0),
        scale(s.scale),
        starts(first_keys) {
    for (const void* in : launch.inputs) whole = whole && aligned16(in);
  }
  // The first key that query i of a row of the batch sees; one past the last sees what the last does.
  __device__ std::int64_t start(std::int64_t b, std::int64_t i) const {
    return starts == nullptr ? 0 : starts[b * queries + (i < queries ? i : queries - 1)];
  }
};

// The operands q, k, v of either layout.
template <class T>
struct AttentionOperands {
  Heads<const T> q, k, v;
  AttentionOperands(const device::Launch& l, const AttentionShape& s) {
    if (s.packed) {
      q = packed_part(l.in<T>(0), 0, s.queries, s.heads, s.dim);
      k = packed_part(l.in<T>(0), 1, s.queries, s.heads, s.dim);
      v = packed_part(l.in<T>(0), 2, s.queries, s.heads, s.dim);
    } else {
      q = heads_of(l.in<T>(0), s.queries, s.heads, s.dim);
      k = heads_of(l.in<T>(1), s.keys, s.key_heads, s.dim);
      v = heads_of(l.in<T>(2), s.keys, s.key_heads, s.dim);
    }
  }
};

// Heads of up to Dim, multiplied by Arithmetic (warp_products.cuh).
template <class Arithmetic, int Dim>
struct Tiles {
  using M = Arithmetic;
  using T = typename M::Stored;
  static constexpr int kDim = Dim, kStride = Dim + M::kPad;
  static constexpr int kStay = 16 * kAttentionWarps;
  // With several products for each of f32 a warp waits for the tensor cores most of the time: several blocks of threads
  // to a processor, each with few rows that pass by.
  static constexpr bool kMany = Dim <= 64 && M::kTogether > 2;
  static constexpr int kPass = Dim <= 64 && !kMany ? 64 : 32;
  static constexpr int kQueryBlocks = kMany ? 4 : 0, kKeyBlocks = kMany ? 3 : 0;  // 0: as the compiler likes
  static std::size_t shared(int stay, int pass) {
    return static_cast<std::size_t>(stay * kStay + pass * kPass) * kStride * sizeof(T);
  }

  // Rows [first, first + Rows) of a head, on their way; what lies past the last row or the last column is 0.
  template <int Rows>
  static __device__ __forceinline__ void fetch(T* to, const Heads<const T>& from, std::int64_t b, std::int64_t h,
                                               std::int64_t first, std::int64_t end, const AttentionSizes& z) {
    constexpr int kUnit = kWidest<T>, kUnits = Dim / kUnit;
    if (z.whole) {
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < Rows * kUnits; i += kAttentionThreads) {
        const int row = i / kUnits, column = i % kUnits * kUnit;
        const bool there = first + row < end && column < z.dim;
        copy_async(shared_address(to + row * kStride + column), there ? from.at(b, first + row, h) + column : from.data,
                   there);
      }
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < Rows * Dim; i += kAttentionThreads) {
        const int row = i / Dim, column = i % Dim;
        const bool there = first + row < end && column < z.dim;
        to[row * kStride + column] = there ? from.at(b, first + row, h)[column] : narrow<T>(0);
      }
    }
  }

  // Sixteen rows from `first` on, columns from `left` on, each times the factor of its half of the rows.
  template <int N>
  static __device__ __forceinline__ void write(const Heads<T>& to, std::int64_t b, std::int64_t h, std::int64_t first,
                                               std::int64_t end, const Sums (&c)[N], int left, float factor,
                                               float factor_behind, const AttentionSizes& z) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + lane / 4 + half * 8;
      if (row >= end) continue;
      T* const out = to.at(b, row, h);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = left + n * 8 + lane % 4 * 2 + e;
          if (column < z.dim) out[column] = narrow<T>(c[n].v[half * 2 + e] * (half == 0 ? factor : factor_behind));
        }
    }
  }
};

// Calls f with the Tiles for a head's size, dtype and whether f32 may be rounded to tf32.
template <class F>
decltype(auto) with_tiles(std::int64_t dim, DType dtype, bool tf32, F&& f) {
  const auto sized = [&]<class M>(M) {
    if (dim <= 64) return f(Tiles<M, 64>{});
    if (dim <= 128) return f(Tiles<M, 128>{});
    return f(Tiles<M, kMaxDim>{});
  };
  switch (dtype) {
    case DType::bf16: return sized(Halves<Bf16>{});
    case DType::f16: return sized(Halves<F16>{});
    case DType::f32: return tf32 ? sized(Singles<1>{}) : sized(Singles<3>{});
    default: not_a_compute_type(dtype);
  }
}

template <class Kernel>
void allow_shared(Kernel kernel, std::size_t bytes) {
  TRI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace trireme::ops::cuda
