#include "trireme/ops/cuda/common.h"
#include "trireme/ops/quantize/cuda_kernels.h"
#include "trireme/ops/quantize/quantized_linear.h"

// Products with weights that are codes. A decoded token reads every weight once, so bytes decide: a warp takes a row of
// codes, 16 bytes for each lane at a time, and expands them in registers. Few rows of x are multiplied together; of
// more (a prompt) the codes are read again for every few, from the second cache as far as they fit.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kRowWarps = 4;  // of a block: rows of codes
constexpr int kFewest = 8;    // rows of x that are multiplied together, but for a single one

struct CodeMatrix {
  const std::uint8_t* codes;
  const float* scales;
  std::int64_t k, group, groups, row_bytes;
};

// `Count` codes of a row from element `at` on, as numbers without their scale. With 4 bits, of 32 elements byte j has
// element j in its low half and element j + 16 in its high half.
template <int Bits, int Count>
__device__ __forceinline__ void expand(const std::uint8_t* row, std::int64_t at, float* out) {
  if constexpr (Count == 1 && Bits == 8) {
    out[0] = static_cast<float>(static_cast<std::int8_t>(row[at]));
  } else if constexpr (Count == 1) {
    const std::int64_t in_block = at % 32;
    const unsigned byte = row[at / 32 * 16 + in_block % 16];
    out[0] = static_cast<float>(static_cast<int>(in_block < 16 ? byte & 15U : byte >> 4U) - 8);
  } else if constexpr (Bits == 8) {
    const Pack<std::uint8_t, 16> bytes = load<16>(row + at);
#pragma unroll
    for (int j = 0; j < 16; ++j) out[j] = static_cast<float>(static_cast<std::int8_t>(bytes.v[j]));
  } else {
    const Pack<std::uint8_t, 16> bytes = load<16>(row + at / 2);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      out[j] = static_cast<float>(static_cast<int>(bytes.v[j] & 15U) - 8);
      out[j + 16] = static_cast<float>(static_cast<int>(bytes.v[j] >> 4U) - 8);
    }
  }
}

// y[i, row] = Σ x[i] · codes[row] · scale + bias for up to M rows of x.
template <int M, int Bits, int Count, class T>
__global__ void multiply_kernel(const T* x, CodeMatrix w, const float* bias, T* y, std::int64_t m, std::int64_t n) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowWarps + threadIdx.y;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * M;
  if (row >= n) return;
  const std::uint8_t* codes = w.codes + row * w.row_bytes;
  const float* scales = w.scales + row * w.groups;
  float sum[M] = {};
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * Count; at < w.k; at += 32 * Count) {
    float weight[Count];
    expand<Bits, Count>(codes, at, weight);
    const float scale = scales[at / w.group];
#pragma unroll
    for (int i = 0; i < M; ++i) {
      if (M > 1 && first + i >= m) continue;
      const T* own = x + (first + i) * w.k + at;
      float part = 0;
      if constexpr (Count == 1) {
        part = wide(own[0]) * weight[0];
      } else {
        constexpr int kVector = kWidest<T>;
#pragma unroll
        for (int c = 0; c < Count; c += kVector) {
          const Pack<T, kVector> v = load<kVector>(own + c);
#pragma unroll
          for (int j = 0; j < kVector; ++j) part += wide(v.v[j]) * weight[c + j];
        }
      }
      sum[i] += part * scale;
    }
  }
#pragma unroll
  for (int i = 0; i < M; ++i) {
    const float total = warp_reduce<Add>(sum[i]);
    if (threadIdx.x == 0 && first + i < m)
      y[(first + i) * n + row] = narrow<T>(total + (bias == nullptr ? 0.0F : bias[row]));
  }
}

template <int M, int Bits, int Count, class T>
void multiply(const device::Launch& launch, const CodeMatrix& w, const QuantizedProblem& p) {
  const dim3 grid(blocks(pieces(p.n, kRowWarps)), blocks(pieces(p.m, M)));
  multiply_kernel<M, Bits, Count, T><<<grid, dim3(32, kRowWarps), 0, stream_of(launch)>>>(
      launch.in<T>(0), w, launch.in<float>(3), launch.out<T>(0), p.m, p.n);
}

CodeMatrix matrix_of(const device::Launch& launch, std::size_t codes, const CodeFormat& format, std::int64_t k) {
  return {launch.in<std::uint8_t>(codes),
          launch.in<float>(codes + 1),
          k,
          format.group_of(k),
          format.groups(k),
          format.row_bytes(k)};
}

// One element of a row of codes.
__device__ __forceinline__ float element(const CodeMatrix& w, int bits, std::int64_t row, std::int64_t column) {
  const std::uint8_t* codes = w.codes + row * w.row_bytes;
  float code = 0;
  if (bits == 8)
    expand<8, 1>(codes, column, &code);
  else
    expand<4, 1>(codes, column, &code);
  return code * w.scales[row * w.groups + column / w.group];
}

// Row i of y is row tokens[i] of the codes, or row i where tokens is null; a token outside gives NaN, as `embedding`.
template <class T>
__global__ void rows_kernel(const std::int32_t* tokens, CodeMatrix w, int bits, T* y, std::int64_t rows) {
  const std::int64_t i = blockIdx.x;
  const std::int64_t row = tokens == nullptr ? i : tokens[i];
  const bool valid = row >= 0 && row < rows;
  for (std::int64_t c = threadIdx.x; c < w.k; c += blockDim.x)
    y[i * w.k + c] = narrow<T>(valid ? element(w, bits, row, c) : nanf(""));
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_quantized_linear_cuda(const ir::KernelSpec& spec) {
  const QuantizedProblem p = quantized_problem(spec.inputs, spec.attributes);
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([p](const device::Launch& launch) {
      if (p.m * p.n == 0) return;
      const CodeMatrix w = matrix_of(launch, 1, p.format, p.k);
      const bool whole = p.k % 16 == 0 && w.group % 16 == 0 && aligned16(w.codes) && aligned16(launch.in<T>(0));
      const bool one = p.m == 1;
      if (p.format.bits == 4 && whole)
        one ? multiply<1, 4, 32, T>(launch, w, p) : multiply<kFewest, 4, 32, T>(launch, w, p);
      else if (p.format.bits == 4)
        multiply<kFewest, 4, 1, T>(launch, w, p);
      else if (whole)
        one ? multiply<1, 8, 16, T>(launch, w, p) : multiply<kFewest, 8, 16, T>(launch, w, p);
      else
        multiply<kFewest, 8, 1, T>(launch, w, p);
      device::cuda::launched("quantized_linear");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_quantized_embedding_cuda(const ir::KernelSpec& spec) {
  const CodeFormat format = code_format(spec.attributes);
  const std::int64_t tokens = spec.inputs[0].elements(), rows = spec.inputs[1].shape[0];
  const std::int64_t width = spec.attributes.integer("width");
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (tokens == 0) return;
      rows_kernel<T><<<blocks(tokens), 128, 0, stream_of(launch)>>>(
          launch.in<std::int32_t>(0), matrix_of(launch, 1, format, width), format.bits, launch.out<T>(0), rows);
      device::cuda::launched("quantized_embedding");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_dequantize_rows_cuda(const ir::KernelSpec& spec) {
  const CodeFormat format = code_format(spec.attributes);
  const std::int64_t rows = spec.inputs[0].shape[0], width = spec.attributes.integer("width");
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (rows == 0) return;
      rows_kernel<T><<<blocks(rows), 128, 0, stream_of(launch)>>>(nullptr, matrix_of(launch, 0, format, width),
                                                                  format.bits, launch.out<T>(0), rows);
      device::cuda::launched("dequantize_rows");
    });
  });
}

}  // namespace trireme::ops
