#pragma once
#include <array>

#include "trireme/device/cuda/flash.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/hopper.cuh"

// How attention's kernels for Hopper bring rows of heads to shared memory and back: in boxes of 64 rows by 64 columns
// of 16 bits.
namespace trireme::ops::cuda::attention_boxes {

constexpr int kHalf = 64;          // rows of a box, and what one warpgroup takes
constexpr int kBox = kHalf * 128;  // bytes

// [batch, rows, heads, dim] by strides, in boxes of 64 rows and columns of one head.
inline CUtensorMap map_of(const device::cuda::FlashSpec& spec, const void* data, std::int64_t heads,
                          const std::array<std::int64_t, 3>& strides) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    TRI_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    return reinterpret_cast<Encode>(found);
  }();
  CUtensorMap map;
  const cuuint64_t extents[4] = {static_cast<cuuint64_t>(spec.dim), static_cast<cuuint64_t>(heads),
                                 static_cast<cuuint64_t>(spec.rows), static_cast<cuuint64_t>(spec.batch)};
  const cuuint64_t bytes[3] = {static_cast<cuuint64_t>(strides[2]) * 2, static_cast<cuuint64_t>(strides[1]) * 2,
                               static_cast<cuuint64_t>(strides[0]) * 2};
  const cuuint32_t box[4] = {64, 1, kHalf, 1}, steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, spec.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(data), extents, bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) device::cuda::check(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

// Rows by the boxes that they are made of, columns first.
template <class X, int Rows>
__device__ __forceinline__ void fetch_tile(unsigned char* to, const CUtensorMap& from, int head, int row, int batch,
                                           hopper::Barrier& b) {
#pragma unroll
  for (int c = 0; c < X::kTiles; ++c)
#pragma unroll
    for (int r = 0; r < Rows; r += kHalf)
      hopper::fetch_box(to + (c * Rows + r) * 128, from, c * 64, head, row + r, batch, b);
}

// Where in a tile of rows of 128 bytes a thread names the row that it has a part in, for the first sixteen columns;
// later columns are this xor their bytes.
__device__ __forceinline__ std::uint32_t row_in(const void* tile, int row, int lane) {
  row += lane % 16;  // matrices: rows 0 to 7, rows 8 to 15, both of the next eight columns
  return shared_address(tile) + row * 128 + ((lane / 16 ^ row % 8) << 4);
}

// 64 rows of a warpgroup's product as 16 bits, where the copy engine expects them; tiles of 64 columns so far apart.
template <class T, int N>
__device__ __forceinline__ void store_rows(void* to, int apart, const float (&c)[N], int thread) {
  const std::uint32_t at = row_in(to, thread / 32 * 16, thread % 32);
#pragma unroll
  for (int j = 0; j < N / 4; j += 2) {
    const std::uint32_t r[4] = {pair<T>(c[4 * j], c[4 * j + 1]), pair<T>(c[4 * j + 2], c[4 * j + 3]),
                                pair<T>(c[4 * j + 4], c[4 * j + 5]), pair<T>(c[4 * j + 6], c[4 * j + 7])};
    hopper::store_matrices((at ^ (j % 8 << 4)) + j / 8 * apart, r);
  }
}

}  // namespace trireme::ops::cuda::attention_boxes
