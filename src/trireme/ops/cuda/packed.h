#pragma once
#include "trireme/ops/cuda/common.h"

// Numbers of 16 bits in pairs, and rows that pass through shared memory, 16 bytes at a time.
namespace trireme::ops::cuda {

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// 16 bytes on their way, past the registers; to be waited for by the thread that asked for them.
__device__ __forceinline__ void copy_async(unsigned shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

// The same, or zeros.
__device__ __forceinline__ void copy_async(unsigned shared, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Two numbers as 16 bits each, the first in the lower half.
template <class T>
__device__ __forceinline__ unsigned pair(float low, float high) {
  unsigned r;
  if constexpr (std::is_same_v<T, Bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// One of two such.
template <class T>
__device__ __forceinline__ float half_of(unsigned word, bool upper) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __uint_as_float(upper ? word & 0xffff0000U : word << 16U);
  else
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (upper ? 16U : 0U))));
}

// 16 bytes as they lie in memory. (An array of 16-bit values takes a register for each.)
template <class T>
struct Packed {
  unsigned words[4];

  __device__ __forceinline__ explicit Packed(const uint4& w) : words{w.x, w.y, w.z, w.w} {}
  __device__ __forceinline__ explicit Packed(unsigned shared) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared)
                 : "memory");
  }
  __device__ __forceinline__ float operator[](int j) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(words[j]);
    else
      return half_of<T>(words[j / 2], j % 2 != 0);
  }
};

}  // namespace trireme::ops::cuda
