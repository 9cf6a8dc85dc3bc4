#include <optional>

#include "trireme/device/cuda/gemm.h"
#include "trireme/ops/quantize/codes_cuda.cuh"
#include "trireme/ops/quantize/cuda_kernels.h"
#include "trireme/ops/quantize/quantized_linear.h"

// Products by a matrix of codes. Few rows of x are multiplied straight from the codes, each of which is read once; for
// many, tiles of the weight are expanded to x's type and multiplied by the library.
namespace trireme::ops {
namespace {

using namespace cuda;
using device::cuda::Gemm;
using device::cuda::GemmSpec;

constexpr int kThreads = 256;
static_assert(kThreads == 32 * kFewWarps);

// Rows of codes [Rows] of a warp by M rows of x.
template <class T, int Bits, int M, int Rows>
__global__ void __launch_bounds__(kThreads)
    few_rows_kernel(const T* x, CodeMatrix w, const float* bias, T* y, std::int64_t m, std::int64_t n, int split) {
  __shared__ float parts[kFewWarps][M * Rows];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t groups_of_rows = kFewWarps / split;
  const std::int64_t first = (blockIdx.x * groups_of_rows + warp / split) * Rows;
  const bool scaled = w.groups > 1;
  float sum[M][Rows] = {};
  if (first < n) {
    std::int64_t row[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) row[r] = first + r < n ? first + r : n - 1;
    const std::int64_t vectors = w.row_bytes / 16;
    for (std::int64_t v = warp % split * 32 + lane; v < vectors; v += split * 32) {
      uint4 codes[Rows];
#pragma unroll
      for (int r = 0; r < Rows; ++r) codes[r] = vector_at(w.codes + row[r] * w.row_bytes + v * 16);
#pragma unroll
      for (int half = 0; half < kHalves<Bits>; ++half) {
        const std::int64_t column = v * kInVector<Bits> + half * 16;
        float scale[Rows], elements[Rows][16];
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          scale[r] = scaled ? w.scale_at(row[r], column) : 1.0F;
          widen<Bits>(codes[r], half, elements[r]);
        }
#pragma unroll
        for (int i = 0; i < M; ++i) {
          float given[16];
          load16(x + (i < m ? i : m - 1) * w.k + column, given);
#pragma unroll
          for (int r = 0; r < Rows; ++r) {
            float even = 0, odd = 0;
#pragma unroll
            for (int e = 0; e < 16; e += 2) {
              even = fmaf(given[e], elements[r][e], even);
              odd = fmaf(given[e + 1], elements[r][e + 1], odd);
            }
            sum[i][r] = fmaf(even + odd, scale[r], sum[i][r]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float whole = warp_reduce<Add>(sum[i][r]);
      if (lane == 0) parts[warp][i * Rows + r] = whole;
    }
  __syncthreads();
  const int at = static_cast<int>(threadIdx.x) / (M * Rows), which = static_cast<int>(threadIdx.x) % (M * Rows);
  const std::int64_t j = (blockIdx.x * groups_of_rows + at) * Rows + which % Rows, i = which / Rows;
  if (at >= groups_of_rows || j >= n || i >= m) return;
  float whole = 0;
  for (int part = 0; part < split; ++part) whole += parts[at * split + part][which];
  if (!scaled) whole *= w.scales[j];
  y[i * n + j] = narrow<T>(bias == nullptr ? whole : whole + bias[j]);
}

// The same for rows that end within a vector, and scales that change there: a warp for each result.
template <class T, int Bits>
__global__ void plain_rows_kernel(const T* x, CodeMatrix w, const float* bias, T* y, std::int64_t n) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kFewWarps + threadIdx.x / 32, i = blockIdx.y;
  if (j >= n) return;
  float sum = 0;
  for (std::int64_t c = threadIdx.x % 32; c < w.k; c += 32)
    sum = fmaf(wide(x[i * w.k + c]), static_cast<float>(code_at<Bits>(w.codes + j * w.row_bytes, c)) * w.scale_at(j, c),
               sum);
  sum = warp_reduce<Add>(sum);
  if (threadIdx.x % 32 == 0) y[i * n + j] = narrow<T>(bias == nullptr ? sum : sum + bias[j]);
}

// Rows of the matrix, those that `tokens` names or all in order, as what their codes stand for; a row that is not there
// is not a number.
template <class T, int Bits>
__global__ void expand_kernel(const std::int32_t* tokens, CodeMatrix w, std::int64_t rows, std::int64_t vocab, T* out) {
  const std::int64_t vectors = w.row_bytes / 16, at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * vectors) return;
  const std::int64_t place = at / vectors, v = at % vectors, row = tokens == nullptr ? place : tokens[place];
  const bool valid = row >= 0 && row < vocab;
  const uint4 codes = valid ? vector_at(w.codes + row * w.row_bytes + v * 16) : uint4{};
#pragma unroll
  for (int half = 0; half < kHalves<Bits>; ++half) {
    const std::int64_t column = v * kInVector<Bits> + half * 16;
    const float scale = valid ? w.scale_at(row, column) : nanf("");
    float elements[16];
    widen<Bits>(codes, half, elements);
#pragma unroll
    for (int i = 0; i < 16; i += kWidest<T>) {
      Pack<T, kWidest<T>> pack;
#pragma unroll
      for (int j = 0; j < kWidest<T>; ++j) pack.v[j] = narrow<T>(elements[i + j] * scale);
      store<kWidest<T>>(out + place * w.k + column + i, pack);
    }
  }
}

template <class T, int Bits>
__global__ void plain_expand_kernel(const std::int32_t* tokens, CodeMatrix w, std::int64_t rows, std::int64_t vocab,
                                    T* out) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * w.k) return;
  const std::int64_t place = at / w.k, column = at % w.k, row = tokens == nullptr ? place : tokens[place];
  const bool valid = row >= 0 && row < vocab;
  out[at] =
      narrow<T>(valid ? static_cast<float>(code_at<Bits>(w.codes + row * w.row_bytes, column)) * w.scale_at(row, column)
                      : nanf(""));
}

template <class T, int Bits>
void expand(cudaStream_t stream, const std::int32_t* tokens, const CodeMatrix& w, std::int64_t rows, std::int64_t vocab,
            T* out) {
  if (rows == 0) return;
  if (w.in_vectors() && aligned16(out))
    expand_kernel<T, Bits>
        <<<blocks(pieces(rows * (w.row_bytes / 16), kThreads)), kThreads, 0, stream>>>(tokens, w, rows, vocab, out);
  else
    plain_expand_kernel<T, Bits>
        <<<blocks(pieces(rows * w.k, kThreads)), kThreads, 0, stream>>>(tokens, w, rows, vocab, out);
  device::cuda::launched("rows of codes");
}

template <class T>
__global__ void add_bias_kernel(const float* bias, T* y, std::int64_t n, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) y[i] = narrow<T>(wide(y[i]) + bias[i % n]);
}

template <class T, int Bits, int M, int Rows>
void multiply_few(const device::Launch& launch, const QuantizedProblem& p, const CodeMatrix& w) {
  const int split = warps_to_a_row(p.n, Rows, w.row_bytes);
  few_rows_kernel<T, Bits, M, Rows>
      <<<blocks(pieces(p.n, Rows * (kFewWarps / split))), kThreads, 0, stream_of(launch)>>>(
          launch.in<T>(0), w, launch.in<float>(3), launch.out<T>(0), p.m, p.n, split);
}

template <class T, int Bits>
class FewRowsOfCodes final : public device::Kernel {
 public:
  explicit FewRowsOfCodes(const QuantizedProblem& problem) : p_(problem) {}

  void launch(const device::Launch& launch) override {
    const CodeMatrix w(p_.format, p_.k, launch.inputs[1], launch.in<float>(2));
    if (!w.in_vectors() || !aligned16(launch.inputs[0])) {
      plain_rows_kernel<T, Bits>
          <<<dim3(blocks(pieces(p_.n, kFewWarps)), blocks(p_.m)), kThreads, 0, stream_of(launch)>>>(
              launch.in<T>(0), w, launch.in<float>(3), launch.out<T>(0), p_.n);
    } else {
      with_few_rows(p_.m, [&]<int M>(std::integral_constant<int, M>) {
        if (fills_gpu(p_.n, p_.k))
          multiply_few<T, Bits, M, M <= 4 ? 4 : 2>(launch, p_, w);
        else
          multiply_few<T, Bits, M, 1>(launch, p_, w);
      });
    }
    device::cuda::launched("quantized_linear");
  }

 private:
  QuantizedProblem p_;
};

// Tiles of columns of y: their weights fit the cache of large GPUs, where the product finds them.
struct WeightTiles {
  std::int64_t columns = 0, last = 0;
  std::size_t weights = 0, bytes = 0;

  WeightTiles(const ir::KernelSpec& spec, const QuantizedProblem& p) {
    constexpr std::int64_t kBytes = std::int64_t{8} << 20, kMultiple = 64;
    const auto size = static_cast<std::int64_t>(size_of(spec.inputs[0].dtype));
    columns = std::min(p.n, std::max(kMultiple, kBytes / (p.k * size) / kMultiple * kMultiple));
    last = p.n % columns;
    weights = static_cast<std::size_t>(pieces(columns * p.k * size, 256) * 256);
    bytes = Gemm::workspace(gemm(spec, p, columns));
    if (last > 0) bytes = std::max(bytes, Gemm::workspace(gemm(spec, p, last)));
    bytes += weights;
  }

  static GemmSpec gemm(const ir::KernelSpec& spec, const QuantizedProblem& p, std::int64_t columns) {
    const DType type = spec.inputs[0].dtype;
    return {.m = p.m,
            .n = columns,
            .k = p.k,
            .trans_b = true,
            .lda = p.k,
            .ldb = p.k,
            .ldc = p.n,
            .input = type,
            .output = type,
            .bias = spec.inputs[3].present && type == DType::f32};
  }
};

template <class T, int Bits>
class ManyRowsOfCodes final : public device::Kernel {
 public:
  ManyRowsOfCodes(const ir::KernelSpec& spec, const QuantizedProblem& problem)
      : p_(problem),
        tiles_(spec, problem),
        adds_bias_(spec.inputs[3].present && spec.inputs[0].dtype != DType::f32),
        whole_(WeightTiles::gemm(spec, problem, tiles_.columns), spec.algorithms) {
    if (tiles_.last > 0) last_.emplace(WeightTiles::gemm(spec, problem, tiles_.last), spec.algorithms);
  }

  void launch(const device::Launch& launch) override {
    const CodeMatrix w(p_.format, p_.k, launch.inputs[1], launch.in<float>(2));
    auto* const weights = static_cast<T*>(launch.workspace);
    auto* const scratch = static_cast<std::byte*>(launch.workspace) + tiles_.weights;
    const float* const bias = launch.in<float>(3);
    for (std::int64_t first = 0; first < p_.n; first += tiles_.columns) {
      const std::int64_t columns = std::min(tiles_.columns, p_.n - first);
      expand<T, Bits>(stream_of(launch), nullptr, w.from_row(first), columns, columns, weights);
      const Gemm& gemm = columns == tiles_.columns ? whole_ : *last_;
      gemm.run(launch.native_stream, launch.inputs[0], weights, launch.out<T>(0) + first, scratch,
               bias == nullptr ? nullptr : bias + first);
    }
    if (!adds_bias_) return;
    const std::int64_t count = p_.m * p_.n;
    add_bias_kernel<<<blocks(pieces(count, kThreads)), kThreads, 0, stream_of(launch)>>>(bias, launch.out<T>(0), p_.n,
                                                                                         count);
    device::cuda::launched("quantized_linear");
  }

 private:
  QuantizedProblem p_;
  WeightTiles tiles_;
  bool adds_bias_;
  Gemm whole_;
  std::optional<Gemm> last_;
};

// Of quantized_embedding, whose codes are operand 1, and dequantize_rows.
std::shared_ptr<device::Kernel> prepare_rows(const ir::KernelSpec& spec, std::size_t codes) {
  const CodeFormat format = code_format(spec.attributes);
  const std::int64_t vocab = spec.inputs[codes].shape[0], width = spec.attributes.integer("width");
  const std::int64_t rows = codes == 0 ? vocab : spec.inputs[0].elements();
  return dispatch_native(spec.outputs[0].dtype, [&]<class T>(T) {
    return with_bits(format.bits, [&]<int Bits>(std::integral_constant<int, Bits>) -> std::shared_ptr<device::Kernel> {
      return make_kernel([=](const device::Launch& launch) {
        const CodeMatrix w(format, width, launch.inputs[codes], launch.in<float>(codes + 1));
        expand<T, Bits>(stream_of(launch), codes == 0 ? nullptr : launch.in<std::int32_t>(0), w, rows, vocab,
                        launch.out<T>(0));
      });
    });
  });
}

}  // namespace

std::size_t quantized_linear_workspace_cuda(const ir::KernelSpec& spec) {
  const QuantizedProblem p = quantized_problem(spec.inputs, spec.attributes);
  return p.m <= kFewRowsOfCodes || p.n == 0 ? 0 : WeightTiles(spec, p).bytes;
}

std::shared_ptr<device::Kernel> prepare_quantized_linear_cuda(const ir::KernelSpec& spec) {
  const QuantizedProblem p = quantized_problem(spec.inputs, spec.attributes);
  if (p.m * p.n == 0) return make_kernel([](const device::Launch&) {});
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) {
    return with_bits(p.format.bits,
                     [&]<int Bits>(std::integral_constant<int, Bits>) -> std::shared_ptr<device::Kernel> {
                       if (p.m <= kFewRowsOfCodes) return std::make_shared<FewRowsOfCodes<T, Bits>>(p);
                       return std::make_shared<ManyRowsOfCodes<T, Bits>>(spec, p);
                     });
  });
}

std::shared_ptr<device::Kernel> prepare_quantized_embedding_cuda(const ir::KernelSpec& spec) {
  return prepare_rows(spec, 1);
}

std::shared_ptr<device::Kernel> prepare_dequantize_rows_cuda(const ir::KernelSpec& spec) {
  return prepare_rows(spec, 0);
}

}  // namespace trireme::ops
