#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"

// What of Hopper's own instructions (sm_90a) is used: barriers in shared memory, the copy engine, and matrix products
// of a warpgroup (128 threads) whose operands lie in shared memory or registers.
namespace trireme::ops::cuda::hopper {

// ---- Registers: a warpgroup of a block gives some of its own to the others.
template <int Count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

// ---- Barriers of the block, by number; `threads` counts those that wait and those that only arrive.
__device__ __forceinline__ void wait_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- Barriers in shared memory, which count arrivals and bytes that the copy engine brings. Phases alternate. Every
// thread arrives for itself, and for copies after it asked for them: so the race checker can follow what is ordered.
using Barrier = std::uint64_t;

__device__ __forceinline__ void start(Barrier& b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(Barrier& b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&b)) : "memory");
}
// Bytes that were asked for must come too, or have come.
__device__ __forceinline__ void arrive_with(Barrier& b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&b)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(Barrier& b, int phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(&b)),
      "r"(phase)
      : "memory");
}

// Which of so many stages, and in which phase of its barriers; every `By`th is taken.
template <int Count, int By = 1>
struct Stage {
  int at, phase = 0;
  __device__ explicit Stage(int first = 0) : at(first) {}
  __device__ void next() {
    at += By;
    if (at < Count) return;
    at -= Count;
    phase ^= 1;
  }
};

// ---- The copy engine.
// What a thread wrote to memory before is seen by the copy engine and the tensor cores after.
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
__device__ __forceinline__ void fence_all() { asm volatile("fence.proxy.async;" ::: "memory"); }

// A tensor of 16-bit numbers as the copy engine knows it: its extents, the fastest first, the bytes from one to the
// next in each dimension but that, and the box that is fetched or stored at once, whose rows are 64 numbers.
template <int Rank>
CUtensorMap tensor_map(DType dtype, const void* data, const std::int64_t (&extents)[Rank],
                       const std::int64_t (&bytes)[Rank - 1], const int (&box)[Rank],
                       CUtensorMapL2promotion promotion) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    TRI_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    return reinterpret_cast<Encode>(found);
  }();
  cuuint64_t all[Rank], apart[Rank - 1];
  cuuint32_t some[Rank], steps[Rank];
  for (int i = 0; i < Rank; ++i) {
    all[i] = static_cast<cuuint64_t>(extents[i]);
    if (i + 1 < Rank) apart[i] = static_cast<cuuint64_t>(bytes[i]);
    some[i] = static_cast<cuuint32_t>(box[i]);
    steps[i] = 1;
  }
  CUtensorMap map;
  const CUresult result =
      encode(&map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Rank,
             const_cast<void*>(data), all, apart, some, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) device::cuda::check(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

// A box of a tensor of four dimensions at {c, x, y, z}. What lies outside is fetched as zeros and not stored.
__device__ __forceinline__ void fetch_box(void* to, const CUtensorMap& from, int c, int x, int y, int z, Barrier& b) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&from)), "r"(c), "r"(x), "r"(y), "r"(z), "r"(shared_address(&b))
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap& to, int c, int x, int y, int z, const void* from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
                   reinterpret_cast<std::uint64_t>(&to)),
               "r"(c), "r"(x), "r"(y), "r"(z), "r"(shared_address(from))
               : "memory");
}
__device__ __forceinline__ void fetch_bytes(void* to, const void* from, int bytes, Barrier& b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&b))
               : "memory");
}
__device__ __forceinline__ void store_bytes(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void add_floats(float* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void close_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All stores of this thread have read their source, or are done.
__device__ __forceinline__ void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- Between blocks.
__device__ __forceinline__ int read_acquire(const int* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void add_release(int* p, int x) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// ---- Matrix products. Tiles in shared memory are rows of 128 bytes, in groups of eight rows (1024 bytes, aligned so),
// the 16-byte pieces of row r permuted by xor with r mod 8 (as the copy engine writes them). Wider ones are several
// such tiles, one for every 64 columns.
__device__ __forceinline__ std::uint64_t tile(const void* p) {
  constexpr std::uint64_t kNextGroup = std::uint64_t{1024 >> 4} << 32, kSwizzled = std::uint64_t{1} << 62;
  return (shared_address(p) & 0x3FFFFU) >> 4 | std::uint64_t{1} << 16 | kNextGroup | kSwizzled;
}
// The same of 128 columns, the later 64 so many bytes behind; for a summed dimension that runs across the rows.
__device__ __forceinline__ std::uint64_t wide_tile(const void* p, int bytes) {
  return (tile(p) & ~(std::uint64_t{0x3FFF} << 16)) | static_cast<std::uint64_t>(bytes >> 4) << 16;
}
// The next 16 of the summed dimension, where it runs along the rows, and where it runs across them.
inline constexpr std::uint64_t kAlong = 32 >> 4, kAcross = 2048 >> 4;

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// The compiler may not move uses of these over this place.
template <int N>
__device__ __forceinline__ void hold(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

// c[64 × 8·N/4] (+)= a · b. Thread t of a warpgroup holds of c, in c[4j … 4j+3], rows 16·(t/32) + t%32/4 and the eighth
// behind it, columns 8j + 2·(t%4) and the next.
#define TRI_NUMBERS_32                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TRI_NUMBERS_64                                                               \
  TRI_NUMBERS_32                                                                     \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TRI_HELD_32                                                                                           \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), \
      "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),  \
      "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), \
      "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define TRI_HELD_64                                                                                                    \
  TRI_HELD_32, "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
      "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),          \
      "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),          \
      "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
#define TRI_WGMMA(N, NUMBERS, HELD, TYPE, A, B, ADD, FLAGS, ...)                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                                    \
               ", 0;\n"                                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NUMBERS "}, " A ", " B \
               ", p, 1, 1, " FLAGS ";\n}"                                                                 \
               : HELD                                                                                     \
               : __VA_ARGS__, "l"(b), "r"(add))
#define TRI_WGMMA_64(TYPE, FLAGS) TRI_WGMMA("64", TRI_NUMBERS_32, TRI_HELD_32, TYPE, "%32", "%33", "%34", FLAGS, "l"(a))
#define TRI_WGMMA_128(TYPE, FLAGS) \
  TRI_WGMMA("128", TRI_NUMBERS_64, TRI_HELD_64, TYPE, "%64", "%65", "%66", FLAGS, "l"(a))
#define TRI_WGMMA_HELD_64(TYPE)                                                                                       \
  TRI_WGMMA("64", TRI_NUMBERS_32, TRI_HELD_32, TYPE, "{%32, %33, %34, %35}", "%36", "%37", "1", "r"(a[0]), "r"(a[1]), \
            "r"(a[2]), "r"(a[3]))
#define TRI_WGMMA_HELD_128(TYPE)                                                                                       \
  TRI_WGMMA("128", TRI_NUMBERS_64, TRI_HELD_64, TYPE, "{%64, %65, %66, %67}", "%68", "%69", "1", "r"(a[0]), "r"(a[1]), \
            "r"(a[2]), "r"(a[3]))

// a and b with the summed dimension along their rows. Columns: two for each number of c.
template <class T, int N>
__device__ __forceinline__ void multiply_along(float (&c)[N], std::uint64_t a, std::uint64_t b, int add) {
  static_assert(N == 32 || N == 64);
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (N == 32 && kBf16)
    TRI_WGMMA_64("bf16", "0, 0");
  else if constexpr (N == 32)
    TRI_WGMMA_64("f16", "0, 0");
  else if constexpr (kBf16)
    TRI_WGMMA_128("bf16", "0, 0");
  else
    TRI_WGMMA_128("f16", "0, 0");
}
// a and b with the summed dimension across their rows.
template <class T>
__device__ __forceinline__ void multiply_across(float (&c)[32], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    TRI_WGMMA_64("bf16", "1, 1");
  else
    TRI_WGMMA_64("f16", "1, 1");
}
// The same with a in registers, laid out as two neighbouring fours of a c.
template <class T, int N>
__device__ __forceinline__ void multiply_held(float (&c)[N], const std::uint32_t* a, std::uint64_t b, int add) {
  static_assert(N == 32 || N == 64);
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (N == 32 && kBf16)
    TRI_WGMMA_HELD_64("bf16");
  else if constexpr (N == 32)
    TRI_WGMMA_HELD_64("f16");
  else if constexpr (kBf16)
    TRI_WGMMA_HELD_128("bf16");
  else
    TRI_WGMMA_HELD_128("f16");
}
#undef TRI_WGMMA
#undef TRI_WGMMA_64
#undef TRI_WGMMA_128
#undef TRI_WGMMA_HELD_64
#undef TRI_WGMMA_HELD_128
#undef TRI_NUMBERS_32
#undef TRI_NUMBERS_64
#undef TRI_HELD_32
#undef TRI_HELD_64

// Four 8×8 matrices of 16-bit numbers, held as the c of a product; lanes 8m … 8m+7 name the rows of matrix m.
__device__ __forceinline__ void store_matrices(std::uint32_t row, const std::uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace trireme::ops::cuda::hopper
