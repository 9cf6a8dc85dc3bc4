#pragma once
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"

// Products of small matrices by the tensor cores, a warp at a time, in four arithmetics: of bf16, of f16, of f32
// rounded to tf32, and of f32 as three products of tf32 (each number in two parts), which loses no more than f32 does.
// Operands lie in shared memory, by rows that are kPad longer than they are wide so that threads meet in no bank.
namespace trireme::ops::cuda {

// 16 × 8 of a result. Thread t of the warp has rows t/4 and, in the second half, t/4 + 8; columns 2·(t%4) and the next.
struct Sums {
  float v[4] = {};
};

// An arithmetic has, for a depth of kDepth, and kTogether results at once (products that need nothing of each other
// hide how long each takes):
//   Left by_row(at, stride)            16 rows, the depth along them
//   Left held(sums)                    the same out of kDepth/8 results side by side
//   by_row(right, at, stride)          16 columns of the right operand, stored as rows
//   by_column(right, at, stride)       16 columns of the right operand, stored as it is; goes with `held`
//   multiply(sums, left, right)        N sums += left · N right operands
template <class T>
struct Halves {
  using Stored = T;
  static constexpr int kDepth = 16, kPad = 8, kTogether = 2;
  struct Left {
    unsigned r[4];
  };
  struct Right {
    unsigned r[2];
  };

  static __device__ __forceinline__ Left by_row(const T* at, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Left a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
                 : "r"(shared_address(at + lane % 16 * stride + lane / 16 * 8))
                 : "memory");
    return a;
  }
  static __device__ __forceinline__ Left held(const Sums* c) {
    return {pair<T>(c[0].v[0], c[0].v[1]), pair<T>(c[0].v[2], c[0].v[3]), pair<T>(c[1].v[0], c[1].v[1]),
            pair<T>(c[1].v[2], c[1].v[3])};
  }
  static __device__ __forceinline__ void by_row(Right* b, const T* at, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].r[0]), "=r"(b[0].r[1]), "=r"(b[1].r[0]), "=r"(b[1].r[1])
                 : "r"(shared_address(at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8))
                 : "memory");
  }
  static __device__ __forceinline__ void by_column(Right* b, const T* at, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].r[0]), "=r"(b[0].r[1]), "=r"(b[1].r[0]), "=r"(b[1].r[1])
                 : "r"(shared_address(at + lane % 16 * stride + lane / 16 * 8))
                 : "memory");
  }
  template <int N>
  static __device__ __forceinline__ void multiply(Sums* c, const Left& a, const Right (&b)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) one(c[n], a, b[n]);
  }

 private:
  static __device__ __forceinline__ void one(Sums& c, const Left& a, const Right& b) {
#define TRI_MMA(TYPE)                                                        \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])               \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]))
    if constexpr (std::is_same_v<T, Bf16>)
      TRI_MMA("bf16");
    else
      TRI_MMA("f16");
#undef TRI_MMA
  }
};

// Of f32. Parts: 1, operands rounded; 3, each the sum of two roundings, and of their four products all but the least.
template <int Parts>
struct Singles {
  using Stored = float;
  static constexpr int kDepth = 8, kPad = 4, kTogether = Parts == 3 ? 8 : 2;
  struct Rounded {
    unsigned high, low;
    Rounded() = default;
    // As cvt.rna.tf32 rounds finite numbers, which takes Hopper five instructions. Of what is left the tensor cores
    // read as many bits; it is as often too small as too large, so what they cut off does not add up.
    __device__ __forceinline__ explicit Rounded(float x) {
      high = (__float_as_uint(x) + 0x1000U) & 0xffffe000U;
      if constexpr (Parts == 3) low = __float_as_uint(x - __uint_as_float(high));
    }
  };
  struct Left {
    Rounded r[4];
  };
  struct Right {
    Rounded r[2];
  };

  static __device__ __forceinline__ Left by_row(const float* at, int stride) {
    at += lane() / 4 * stride + lane() % 4;
    return {Rounded(at[0]), Rounded(at[8 * stride]), Rounded(at[4]), Rounded(at[8 * stride + 4])};
  }
  // The order of the summed dimension is free: a thread's two neighbouring columns stand for t%4 and t%4 + 4 of it.
  static __device__ __forceinline__ Left held(const Sums* c) {
    return {Rounded(c->v[0]), Rounded(c->v[2]), Rounded(c->v[1]), Rounded(c->v[3])};
  }
  static __device__ __forceinline__ void by_row(Right* b, const float* at, int stride) {
    at += lane() / 4 * stride + lane() % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) b[n] = {Rounded(at[8 * n * stride]), Rounded(at[8 * n * stride + 4])};
  }
  static __device__ __forceinline__ void by_column(Right* b, const float* at, int stride) {
    at += lane() % 4 * 2 * stride + lane() / 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) b[n] = {Rounded(at[8 * n]), Rounded(at[8 * n + stride])};
  }
  template <int N>
  static __device__ __forceinline__ void multiply(Sums* c, const Left& a, const Right (&b)[N]) {
    if constexpr (Parts == 1) {
      all(c, a, b, &Rounded::high, &Rounded::high);
    } else {  // the tensor cores cut sums off where f32 rounds them: a long sum is not left to them
      Sums sums[N];
      all(sums, a, b, &Rounded::low, &Rounded::high);
      all(sums, a, b, &Rounded::high, &Rounded::low);
      all(sums, a, b, &Rounded::high, &Rounded::high);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[n].v[e] += sums[n].v[e];
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  template <int N>
  static __device__ __forceinline__ void all(Sums* c, const Left& a, const Right (&b)[N], unsigned Rounded::*left,
                                             unsigned Rounded::*right) {
#pragma unroll
    for (int n = 0; n < N; ++n) one(c[n], a, b[n], left, right);
  }
  static __device__ __forceinline__ void one(Sums& c, const Left& a, const Right& b, unsigned Rounded::*left,
                                             unsigned Rounded::*right) {
    asm volatile(  // so that the compiler keeps their order
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
        : "r"(a.r[0].*left), "r"(a.r[1].*left), "r"(a.r[2].*left), "r"(a.r[3].*left), "r"(b.r[0].*right),
          "r"(b.r[1].*right));
  }
};

// s[16 × N] += a[16 × D] · b[N × D]ᵀ
template <class M, int D, int Stride, int Tiles>
__device__ __forceinline__ void multiply_rows(Sums (&s)[Tiles], const typename M::Stored* a,
                                              const typename M::Stored* b) {
  constexpr int kGroup = Tiles < M::kTogether ? Tiles : M::kTogether;
#pragma unroll
  for (int k = 0; k < D; k += M::kDepth) {
    const typename M::Left left = M::by_row(a + k, Stride);
#pragma unroll
    for (int n = 0; n < Tiles; n += kGroup) {
      typename M::Right right[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; i += 2) M::by_row(right + i, b + (n + i) * 8 * Stride + k, Stride);
      M::multiply(s + n, left, right);
    }
  }
}

// y[16 × N] += p[16 × K] · b[K × N]
template <class M, int Stride, int Deep, int Tiles>
__device__ __forceinline__ void multiply_columns(Sums (&y)[Tiles], const Sums (&p)[Deep], const typename M::Stored* b) {
  constexpr int kGroup = Tiles < M::kTogether ? Tiles : M::kTogether;
#pragma unroll
  for (int k = 0; k < Deep; k += M::kDepth / 8) {
    const typename M::Left left = M::held(p + k);
#pragma unroll
    for (int n = 0; n < Tiles; n += kGroup) {
      typename M::Right right[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; i += 2) M::by_column(right + i, b + k * 8 * Stride + (n + i) * 8, Stride);
      M::multiply(y + n, left, right);
    }
  }
}

}  // namespace trireme::ops::cuda
