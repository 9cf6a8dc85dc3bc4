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
  return hopper::tensor_map(spec.dtype, data, {spec.dim, heads, spec.rows, spec.batch},
                            {strides[2] * 2, strides[1] * 2, strides[0] * 2}, {64, 1, kHalf, 1},
                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
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

// The same on their way to memory, by a warpgroup, which has a barrier of its own; its first thread asks for the copy.
template <class X, class T>
__device__ __forceinline__ void send_rows(const CUtensorMap& to, int head, int row, int batch, void* through, int apart,
                                          const float (&c)[X::kDim / 2], int barrier, int thread) {
  store_rows<T>(through, apart, c, thread);
  hopper::fence_shared();
  hopper::wait_at(barrier, 128);
  if (thread != 0) return;
#pragma unroll
  for (int n = 0; n < X::kTiles; ++n)
    hopper::store_box(to, n * 64, head, row, batch, static_cast<unsigned char*>(through) + n * apart);
  hopper::close_stores();
}

}  // namespace trireme::ops::cuda::attention_boxes
