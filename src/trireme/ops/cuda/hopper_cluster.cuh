#pragma once
#include "trireme/ops/cuda/hopper.cuh"

// Clusters of two blocks of threads, which run on neighbouring processors and write to each other's shared memory; and
// the widest product of a warpgroup. Barriers of both blocks lie at the same address.
namespace trireme::ops::cuda::hopper {

__device__ __forceinline__ int rank_in_cluster() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Barriers that were started before are seen by both blocks after.
__device__ __forceinline__ void meet_in_cluster() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Arrives at the barrier of one of the blocks.
__device__ __forceinline__ void arrive_in(Barrier& b, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_address(&b)),
      "r"(rank)
      : "memory");
}

// A box of a matrix at {column, row}, for this block, and for both. What lies outside is fetched as zeros.
__device__ __forceinline__ void fetch_box(void* to, const CUtensorMap& from, int column, int row, Barrier& b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&from)), "r"(column), "r"(row), "r"(shared_address(&b))
      : "memory");
}
__device__ __forceinline__ void fetch_box_for_both(void* to, const CUtensorMap& from, int column, int row, Barrier& b) {
  constexpr std::uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&from)), "r"(column), "r"(row), "r"(shared_address(&b)), "h"(kBoth)
      : "memory");
}

#define TRI_NUMBERS_128                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TRI_HELD_8(i)                                                                                         \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
      "+f"(c[i + 7])
#define TRI_HELD_32(i) TRI_HELD_8(i), TRI_HELD_8(i + 8), TRI_HELD_8(i + 16), TRI_HELD_8(i + 24)
#define TRI_WGMMA_256(TYPE)                                                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE \
               " {" TRI_NUMBERS_128 "}, %128, %129, p, 1, 1, 0, %131;\n}"                                              \
               : TRI_HELD_32(0), TRI_HELD_32(32), TRI_HELD_32(64), TRI_HELD_32(96)                                     \
               : "l"(a), "l"(b), "r"(add), "n"(Across ? 1 : 0))

// c[64 × 256] (+)= a · b; the summed dimension runs along the rows of a, and along those of b or across them.
template <class T, bool Across>
__device__ __forceinline__ void multiply_widest(float (&c)[128], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    TRI_WGMMA_256("bf16");
  else
    TRI_WGMMA_256("f16");
}
#undef TRI_NUMBERS_128
#undef TRI_HELD_8
#undef TRI_HELD_32
#undef TRI_WGMMA_256

}  // namespace trireme::ops::cuda::hopper
