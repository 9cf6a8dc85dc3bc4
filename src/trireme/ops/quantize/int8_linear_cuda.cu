#include "trireme/ops/quantize/codes_cuda.cuh"
#include "trireme/ops/quantize/cuda_kernels.h"
#include "trireme/ops/quantize/int8_linear.h"

// Products of integers: few rows of x by instructions that multiply four bytes at once, many by the tensor cores.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// What both kernels are given besides the matrix of codes.
template <class Y>
struct IntegerOperands {
  const std::int8_t* x;
  const float* x_scale;
  const float* bias;
  Y* y;
  std::int64_t m, n;

  __device__ __forceinline__ void write(std::int64_t i, std::int64_t j, float value) const {
    y[i * n + j] = narrow<Y>(bias == nullptr ? value : value + bias[j]);
  }
};

// Σ over four bytes of x · code. Codes of 4 bits are 8 more than what they stand for.
template <int Bits>
__device__ __forceinline__ int multiply_four(int x, unsigned codes, int sum) {
  sum = __dp4a(x, static_cast<int>(codes), sum);
  return Bits == 8 ? sum : __dp4a(x, static_cast<int>(0xf8f8f8f8U), sum);
}

template <class Y, int Bits, int M, int Rows>
__global__ void __launch_bounds__(kThreads) few_integers_kernel(IntegerOperands<Y> o, CodeMatrix w, int split) {
  __shared__ float parts[kFewWarps][M * Rows];
  __shared__ int whole_parts[kFewWarps][M * Rows];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t groups_of_rows = kFewWarps / split;
  const std::int64_t first = (blockIdx.x * groups_of_rows + warp / split) * Rows;
  const bool scaled = w.groups > 1;
  int sum[M][Rows] = {};
  float total[M][Rows] = {};
  if (first < o.n) {
    std::int64_t row[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) row[r] = first + r < o.n ? first + r : o.n - 1;
    const std::int64_t vectors = w.row_bytes / 16;
    for (std::int64_t v = warp % split * 32 + lane; v < vectors; v += split * 32) {
      uint4 codes[Rows];
#pragma unroll
      for (int r = 0; r < Rows; ++r) codes[r] = vector_at(w.codes + row[r] * w.row_bytes + v * 16);
#pragma unroll
      for (int half = 0; half < kHalves<Bits>; ++half) {
        const std::int64_t column = v * kInVector<Bits> + half * 16;
        float scale[Rows];
#pragma unroll
        for (int r = 0; r < Rows; ++r) scale[r] = scaled ? w.scale_at(row[r], column) : 0.0F;
#pragma unroll
        for (int i = 0; i < M; ++i) {
          const uint4 given =
              vector_at(reinterpret_cast<const std::byte*>(o.x) + (i < o.m ? i : o.m - 1) * w.k + column);
#pragma unroll
          for (int r = 0; r < Rows; ++r) {
            int own = 0;
            own = multiply_four<Bits>(static_cast<int>(given.x), four_codes<Bits>(codes[r].x, half), own);
            own = multiply_four<Bits>(static_cast<int>(given.y), four_codes<Bits>(codes[r].y, half), own);
            own = multiply_four<Bits>(static_cast<int>(given.z), four_codes<Bits>(codes[r].z, half), own);
            own = multiply_four<Bits>(static_cast<int>(given.w), four_codes<Bits>(codes[r].w, half), own);
            if (scaled)
              total[i][r] = fmaf(static_cast<float>(own), scale[r], total[i][r]);
            else
              sum[i][r] += own;
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float part = scaled ? warp_reduce<Add>(total[i][r]) : 0.0F;
      const int whole = scaled ? 0 : warp_reduce<Add>(sum[i][r]);
      if (lane != 0) continue;
      parts[warp][i * Rows + r] = part;
      whole_parts[warp][i * Rows + r] = whole;
    }
  __syncthreads();
  const int at = static_cast<int>(threadIdx.x) / (M * Rows), which = static_cast<int>(threadIdx.x) % (M * Rows);
  const std::int64_t j = (blockIdx.x * groups_of_rows + at) * Rows + which % Rows, i = which / Rows;
  if (at >= groups_of_rows || j >= o.n || i >= o.m) return;
  float part = 0;
  int whole = 0;
  for (int p = 0; p < split; ++p) {
    part += parts[at * split + p][which];
    whole += whole_parts[at * split + p][which];
  }
  o.write(i, j, scaled ? part * *o.x_scale : static_cast<float>(whole) * (w.scales[j] * *o.x_scale));
}

// A block of threads has 64 rows of x and 64 of codes, whose bytes pass through shared memory, 64 of each row at a
// time; a warp multiplies 16 rows of x by all of them.
constexpr int kTile = 64, kRowStride = kTile + 16, kTileWarps = kTile / 16, kTileThreads = 32 * kTileWarps;

struct IntegerSums {
  int v[4] = {};
};

__device__ __forceinline__ void multiply_bytes(IntegerSums& c, const int (&a)[4], const int (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c.v[0]), "+r"(c.v[1]), "+r"(c.v[2]), "+r"(c.v[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 64 bytes of each of 64 rows of x; zeros past the last row and column.
__device__ __forceinline__ void fetch_inputs(std::byte* to, const std::int8_t* x, std::int64_t first, std::int64_t rows,
                                             std::int64_t column, std::int64_t k) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * 4; i += kTileThreads) {
    const std::int64_t row = first + i / 4, c = column + i % 4 * 16;
    const bool there = row < rows && c < k;
    *reinterpret_cast<uint4*>(to + i / 4 * kRowStride + i % 4 * 16) =
        there ? vector_at(reinterpret_cast<const std::byte*>(x) + row * k + c) : uint4{};
  }
}

// The same of codes, as signed bytes.
template <int Bits>
__device__ __forceinline__ void fetch_codes(std::byte* to, const CodeMatrix& w, std::int64_t first, std::int64_t rows,
                                            std::int64_t column) {
  constexpr int kVectors = kTile / kInVector<Bits>;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kVectors; i += kTileThreads) {
    const std::int64_t row = first + i / kVectors, c = column + i % kVectors * kInVector<Bits>;
    const bool there = row < rows && c < w.k;
    const uint4 codes = there ? vector_at(w.codes + row * w.row_bytes + c / kInVector<Bits> * 16) : uint4{};
    std::byte* const at = to + i / kVectors * kRowStride + i % kVectors * kInVector<Bits>;
#pragma unroll
    for (int half = 0; half < kHalves<Bits>; ++half) {
      uint4 bytes = codes;
      if (Bits == 4)
        bytes = {__vsub4(four_codes<Bits>(codes.x, half), 0x08080808U),
                 __vsub4(four_codes<Bits>(codes.y, half), 0x08080808U),
                 __vsub4(four_codes<Bits>(codes.z, half), 0x08080808U),
                 __vsub4(four_codes<Bits>(codes.w, half), 0x08080808U)};
      *reinterpret_cast<uint4*>(at + half * 16) = bytes;
    }
  }
}

template <class Y, int Bits>
__global__ void __launch_bounds__(kTileThreads) many_integers_kernel(IntegerOperands<Y> o, CodeMatrix w) {
  __shared__ __align__(16) std::byte inputs[kTile * kRowStride], codes[kTile * kRowStride];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t left = static_cast<std::int64_t>(blockIdx.x) * kTile,
                     top = static_cast<std::int64_t>(blockIdx.y) * kTile;
  constexpr int kResults = kTile / 8;
  IntegerSums sums[kResults];
  float total[kResults][4] = {};
  const auto end_group = [&](std::int64_t g) {
#pragma unroll
    for (int n = 0; n < kResults; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t j = left + n * 8 + lane % 4 * 2 + e % 2;
        const float scale = j < o.n ? w.scales[j * w.groups + g] * *o.x_scale : 0.0F;
        total[n][e] = fmaf(static_cast<float>(sums[n].v[e]), scale, total[n][e]);
        sums[n].v[e] = 0;
      }
  };
  for (std::int64_t k = 0; k < w.k; k += kTile) {
    __syncthreads();
    fetch_inputs(inputs, o.x, top, o.m, k, w.k);
    fetch_codes<Bits>(codes, w, left, o.n, k);
    __syncthreads();
#pragma unroll
    for (int at = 0; at < kTile; at += 32) {
      const std::byte* const mine = inputs + (warp * 16 + lane / 4) * kRowStride + at + lane % 4 * 4;
      const auto word = [](const std::byte* p) { return *reinterpret_cast<const int*>(p); };
      const int a[4] = {word(mine), word(mine + 8 * kRowStride), word(mine + 16), word(mine + 8 * kRowStride + 16)};
#pragma unroll
      for (int n = 0; n < kResults; ++n) {
        const std::byte* const theirs = codes + (n * 8 + lane / 4) * kRowStride + at + lane % 4 * 4;
        const int b[2] = {word(theirs), word(theirs + 16)};
        multiply_bytes(sums[n], a, b);
      }
      if (w.groups > 1 && k + at < w.k && (k + at + 32) % w.group == 0) end_group((k + at) / w.group);
    }
  }
  if (w.groups == 1) end_group(0);
#pragma unroll
  for (int n = 0; n < kResults; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const std::int64_t i = top + warp * 16 + lane / 4 + e / 2 * 8, j = left + n * 8 + lane % 4 * 2 + e % 2;
      if (i < o.m && j < o.n) o.write(i, j, total[n][e]);
    }
}

// For rows that end within a vector, and groups that do: a thread for each result.
template <class Y, int Bits>
__global__ void plain_integers_kernel(IntegerOperands<Y> o, CodeMatrix w) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= o.m * o.n) return;
  const std::int64_t i = at / o.n, j = at % o.n;
  float total = 0;
  for (std::int64_t g = 0; g < w.groups; ++g) {
    int sum = 0;
    for (std::int64_t c = g * w.group; c < (g + 1) * w.group; ++c)
      sum += static_cast<int>(o.x[i * w.k + c]) * code_at<Bits>(w.codes + j * w.row_bytes, c);
    total = fmaf(static_cast<float>(sum), w.scales[j * w.groups + g] * *o.x_scale, total);
  }
  o.write(i, j, total);
}

template <class Y, int Bits>
void multiply_integers(const device::Launch& launch, const QuantizedProblem& p) {
  const CodeMatrix w(p.format, p.k, launch.inputs[1], launch.in<float>(2));
  const IntegerOperands<Y> o{
      launch.in<std::int8_t>(0), launch.in<float>(3), launch.in<float>(4), launch.out<Y>(0), p.m, p.n};
  const cudaStream_t stream = stream_of(launch);
  const bool vectors = w.in_vectors() && aligned16(o.x);
  if (vectors && p.m <= kFewRowsOfCodes) {
    with_few_rows(p.m, [&]<int M>(std::integral_constant<int, M>) {
      constexpr int kRows = 2;
      const int split = warps_to_a_row(p.n, kRows, w.row_bytes);
      few_integers_kernel<Y, Bits, M, kRows>
          <<<blocks(pieces(p.n, kRows * (kFewWarps / split))), kThreads, 0, stream>>>(o, w, split);
    });
  } else if (vectors && (w.groups == 1 || w.group % 32 == 0)) {
    many_integers_kernel<Y, Bits>
        <<<dim3(blocks(pieces(p.n, kTile)), blocks(pieces(p.m, kTile))), kTileThreads, 0, stream>>>(o, w);
  } else {
    plain_integers_kernel<Y, Bits><<<blocks(pieces(p.m * p.n, kThreads)), kThreads, 0, stream>>>(o, w);
  }
  device::cuda::launched("int8_linear");
}

template <class T>
__global__ void round_kernel(const T* x, const float* scale, std::int8_t* q, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const float inverse = *scale > 0 ? 1.0F / *scale : 0.0F;
  // (Of what is not a number the smaller is the other.)
  q[i] = static_cast<std::int8_t>(fmaxf(fminf(rintf(wide(x[i]) * inverse), 127.0F), -127.0F));
}

// Magnitudes in the order of their bits, with what is not a number above all: the largest is the same whatever the
// order in which they come.
__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffU; }

__global__ void begin_largest_kernel(const float* so_far, unsigned* largest) { *largest = magnitude_bits(*so_far); }

template <class T>
__global__ void largest_kernel(const T* x, std::int64_t n, unsigned* largest) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const unsigned own = __reduce_max_sync(0xffffffffU, i < n ? magnitude_bits(wide(x[i])) : 0U);
  if (threadIdx.x % 32 == 0) atomicMax(largest, own);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_int8_linear_cuda(const ir::KernelSpec& spec) {
  const QuantizedProblem p = quantized_problem(spec.inputs, spec.attributes);
  if (p.m * p.n == 0) return make_kernel([](const device::Launch&) {});
  return dispatch_native(spec.outputs[0].dtype, [&]<class Y>(Y) {
    return with_bits(p.format.bits,
                     [&]<int Bits>(std::integral_constant<int, Bits>) -> std::shared_ptr<device::Kernel> {
                       return make_kernel([p](const device::Launch& launch) { multiply_integers<Y, Bits>(launch, p); });
                     });
  });
}

std::shared_ptr<device::Kernel> prepare_round_to_int8_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([n = spec.inputs[0].elements()](const device::Launch& launch) {
      if (n == 0) return;
      round_kernel<<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
          launch.in<T>(0), launch.in<float>(1), launch.out<std::int8_t>(0), n);
      device::cuda::launched("round_to_int8");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_largest_magnitude_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([n = spec.inputs[0].elements()](const device::Launch& launch) {
      auto* const largest = launch.out<unsigned>(0);
      begin_largest_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.in<float>(1), largest);
      if (n > 0)
        largest_kernel<<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), n, largest);
      device::cuda::launched("largest_magnitude");
    });
  });
}

}  // namespace trireme::ops
