#include "trireme/device/cuda/gemm.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"
#include "trireme/ops/cuda/sum.h"
#include "trireme/ops/loss/cuda_kernels.h"

// cross_entropy, its gradient, and linear_cross_entropy: the same kernel over rows of logits.
namespace trireme::ops {
namespace {

using namespace cuda;
using device::cuda::Gemm;
using device::cuda::GemmSpec;

struct Rows {
  const std::int32_t* targets;
  std::int64_t vocab, stride;  // of a row; what lies between has no logits, and gradients 0
  float* lse;          // per row: written by the forward pass, read where only gradients are wanted; may be null
  float* losses;       // per row; may be null
  const float* dloss;  // null: 1
  double scale;
};

constexpr int kAhead = 2;  // loads of a thread on their way at once
constexpr int kRowThreads = 512;

// exp(x − shift). In 16 bits the quick one is exact enough, in two instructions: `scaled` is shift·log₂e.
template <class T>
__device__ __forceinline__ float exp_of(float x, float shift, float scaled) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x - shift);
  } else {
    float y = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, 1.4426950408889634F, -scaled)));
    return y;
  }
}
__device__ __forceinline__ float scaled_by_log2e(float x) { return x * 1.4426950408889634F; }

// The largest of a row and Σ exp(x − largest), as pairs that join.
struct Softmax {
  float top = -INFINITY, sum = 0;
};
__device__ __forceinline__ Softmax join(Softmax a, Softmax b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) return {};
  return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

template <class T>
__device__ Softmax row_softmax(const T* x, std::int64_t vocab, bool even) {
  constexpr int N = kWidest<T>;
  Softmax own;
  const auto take = [&](float v) {
    if (v > own.top) {
      own.sum = own.sum * expf(own.top - v) + 1;
      own.top = v;
    } else {
      own.sum += expf(v - own.top);
    }
  };
  const std::int64_t whole = even ? vocab / N * N : 0;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const auto take_packs = [&]<int Packs>(std::int64_t i, std::integral_constant<int, Packs>) {
    Pack<T, N> pack[Packs];
    float most = own.top;
#pragma unroll
    for (int k = 0; k < Packs; ++k) pack[k] = load<N>(x + i + k * step);
#pragma unroll
    for (int k = 0; k < Packs; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j) most = fmaxf(most, wide(pack[k].v[j]));
    if (most > own.top) {
      own.sum *= expf(own.top - most);
      own.top = most;
    }
    const float scaled = scaled_by_log2e(own.top);
#pragma unroll
    for (int k = 0; k < Packs; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j) own.sum += exp_of<T>(wide(pack[k].v[j]), own.top, scaled);
  };
  std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * N;
  for (; at + (kAhead - 1) * step < whole; at += kAhead * step) take_packs(at, std::integral_constant<int, kAhead>{});
  for (; at < whole; at += step) take_packs(at, std::integral_constant<int, 1>{});
  for (std::int64_t i = whole + threadIdx.x; i < vocab; i += blockDim.x) take(wide(x[i]));
  __shared__ Softmax shared[32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    own = join(own, {__shfl_xor_sync(0xffffffffU, own.top, offset), __shfl_xor_sync(0xffffffffU, own.sum, offset)});
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  own = shared[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) own = join(own, shared[w]);
  return own;
}

// Each block takes a row; gradients may be in place of the logits.
template <bool Forward, bool Gradient, class T>
__global__ void __launch_bounds__(kRowThreads, 3) rows_kernel(const T* logits, T* dlogits, Rows r, std::int64_t first) {
  const std::int64_t row = blockIdx.x;
  const T* x = logits + row * r.stride;
  const bool even = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
  const std::int32_t target = r.targets[first + row];
  float lse = 0;
  if constexpr (Forward) {
    const Softmax s = row_softmax(x, r.vocab, even);
    lse = s.top + logf(s.sum);
  } else {
    lse = r.lse[first + row];
  }
  // One that is out of range makes the loss NaN, which stops the run with a search for the cause.
  const bool counted = target >= 0 && target < r.vocab;
  const float at_target = counted ? wide(x[target]) : 0.0F;
  if (Forward && threadIdx.x == 0) {
    if (r.lse != nullptr) r.lse[first + row] = lse;
    r.losses[first + row] = target >= r.vocab ? nanf("") : counted ? lse - at_target : 0.0F;
  }
  if constexpr (!Gradient) return;
  __syncthreads();  // the target's logit has been read
  T* d = dlogits + row * r.stride;
  const auto weight = static_cast<float>(r.scale * (r.dloss != nullptr ? static_cast<double>(*r.dloss) : 1.0)) *
                      (counted ? 1.0F : 0.0F);
  const float scaled = scaled_by_log2e(lse);
  const auto gradient = [&](float v) { return counted ? weight * exp_of<T>(v, lse, scaled) : 0.0F; };
  constexpr int N = kWidest<T>;
  const std::int64_t whole = even && reinterpret_cast<std::uintptr_t>(d) % 16 == 0 ? r.vocab / N * N : 0;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const auto give_packs = [&]<int Packs>(std::int64_t i, std::integral_constant<int, Packs>) {
    Pack<T, N> pack[Packs];
#pragma unroll
    for (int k = 0; k < Packs; ++k) pack[k] = load<N>(x + i + k * step);
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
#pragma unroll
      for (int j = 0; j < N; ++j) pack[k].v[j] = narrow<T>(gradient(wide(pack[k].v[j])));
      store<N>(d + i + k * step, pack[k]);
    }
  };
  std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * N;
  for (; at + (kAhead - 1) * step < whole; at += kAhead * step) give_packs(at, std::integral_constant<int, kAhead>{});
  for (; at < whole; at += step) give_packs(at, std::integral_constant<int, 1>{});
  for (std::int64_t i = whole + threadIdx.x; i < r.vocab; i += blockDim.x) d[i] = narrow<T>(gradient(wide(x[i])));
  for (std::int64_t i = r.vocab + threadIdx.x; i < r.stride; i += blockDim.x) d[i] = narrow<T>(0.0F);
  __syncthreads();
  if (threadIdx.x == 0 && counted) d[target] = narrow<T>(weight * (expf(at_target - lse) - 1.0F));
}

// The same with gradients in place of the logits, the row held in shared memory meanwhile: it is read once and written
// once. Each thread has its own packs of the row throughout.
constexpr int kHeldThreads = 512;
constexpr std::size_t kMaxHeld = 110 * 1024;  // bytes of a row: two blocks to a processor

template <class T>
bool can_hold(std::int64_t stride) {
  return sizeof(T) == 2 && static_cast<std::size_t>(stride) * sizeof(T) <= kMaxHeld;
}

template <class T>
__global__ void __launch_bounds__(kHeldThreads, 2) held_rows_kernel(T* logits, Rows r, std::int64_t first) {
  extern __shared__ __align__(16) std::byte held[];
  __shared__ float shared[32];
  constexpr int N = kWidest<T>;
  constexpr int kStep = kHeldThreads * N;
  const T* const x = reinterpret_cast<const T*>(held);
  T* const d = logits + static_cast<std::int64_t>(blockIdx.x) * r.stride;
  const int stride = static_cast<int>(r.stride), vocab = static_cast<int>(r.vocab);
  const int own = static_cast<int>(threadIdx.x) * N;
  const unsigned base = shared_address(held);
  const auto packed = [&](int i) { return Packed<T>(base + static_cast<unsigned>(i) * sizeof(T)); };
  for (int i = own; i < stride; i += kStep) copy_async(base + static_cast<unsigned>(i) * sizeof(T), d + i);
  wait_copies();
  const int whole = vocab / N * N;
  const auto each = [&](auto&& take) {
#pragma unroll 2
    for (int i = own; i < whole; i += kStep) {
      const Packed<T> pack = packed(i);
#pragma unroll
      for (int j = 0; j < N; ++j) take(pack[j]);
    }
    if (whole < vocab && whole % kStep == own)
      for (int i = whole; i < vocab; ++i) take(wide(x[i]));
  };
  float top = -INFINITY;
  each([&](float v) { top = fmaxf(top, v); });
  top = block_reduce<Largest>(top, shared);
  const float scaled_top = scaled_by_log2e(top);
  float sum = 0;
  each([&](float v) { sum += exp_of<T>(v, top, scaled_top); });
  sum = block_reduce<Add>(sum, shared);
  const float lse = top + logf(sum);
  // One that is out of range makes the loss NaN, which stops the run with a search for the cause.
  const std::int32_t target = r.targets[first + blockIdx.x];
  const bool counted = target >= 0 && target < vocab;
  const float at_target = counted ? wide(x[target]) : 0.0F;
  if (threadIdx.x == 0) {
    if (r.lse != nullptr) r.lse[first + blockIdx.x] = lse;
    r.losses[first + blockIdx.x] = target >= vocab ? nanf("") : counted ? lse - at_target : 0.0F;
  }
  const auto weight = static_cast<float>(r.scale * (r.dloss != nullptr ? static_cast<double>(*r.dloss) : 1.0));
  const float scaled = counted ? scaled_by_log2e(lse) : INFINITY;  // which makes every gradient 0
  const auto gradient = [&](float v) { return narrow<T>(weight * exp_of<T>(v, lse, scaled)); };
#pragma unroll 2
  for (int i = own; i < whole; i += kStep) {
    const Packed<T> pack = packed(i);
    Pack<T, N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) result.v[j] = gradient(pack[j]);
    store<N>(d + i, result);
    if (counted && target >= i && target < i + N) d[target] = narrow<T>(weight * (expf(at_target - lse) - 1.0F));
  }
  // The last pack with logits, in part, and what is behind it.
  for (int i = whole + static_cast<int>(threadIdx.x); i < stride; i += kHeldThreads) {
    const bool at = counted && i == target;
    d[i] = at ? narrow<T>(weight * (expf(at_target - lse) - 1.0F)) : i < vocab ? gradient(wide(x[i])) : narrow<T>(0.0F);
  }
}

template <class T>
__global__ void round_kernel(const float* x, T* y, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = narrow<T>(x[i]);
}

unsigned row_threads(std::int64_t vocab) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(pieces(vocab, 8 * 32) * 32, 32, kRowThreads));
}

// Rows of the logits in a chunk, a power of two: as many as keep them at half a GiB in 16 bits, or at twice the weight
// in f32. Each chunk reads and writes the weight's gradient in f32, which costs the less the more rows its products
// have. The vocabulary is rounded up to a multiple of 64, by rows of zeros behind the weight: products of odd sizes
// take several times as long.
struct Plan {
  std::int64_t rows, vocab, dim, stride, chunk;
  bool gradients, tf32, narrow_dweight, own_sums, padded;
  DType dtype;
  std::size_t losses_at = 0, logits_at = 0, weight_at = 0, sums_at = 0, gemm_at = 0, bytes = 0;

  explicit Plan(const ir::KernelSpec& spec)
      : rows(spec.inputs[2].elements()),
        vocab(spec.inputs[1].shape[0]),
        dim(spec.inputs[1].shape[1]),
        stride(pieces(vocab, 64) * 64),
        chunk(spec.attributes.integer("chunk")),
        gradients(spec.attributes.boolean("with_gradients")),
        tf32(spec.attributes.boolean("tf32")),
        dtype(spec.inputs[0].dtype) {
    const std::int64_t most = std::max(std::int64_t{1} << 28, 4 * stride * dim);
    if (chunk == 0)
      for (chunk = 128; 2 * chunk * stride <= most && chunk < rows; chunk *= 2) {
      }
    chunk = std::max<std::int64_t>(1, std::min(chunk, rows));
    narrow_dweight = gradients && spec.outputs[2].dtype != DType::f32;
    own_sums = narrow_dweight && chunk < rows;
    padded = stride != vocab;
    losses_at = take(static_cast<std::size_t>(rows) * sizeof(float));
    logits_at = take(static_cast<std::size_t>(chunk * stride) * size_of(dtype));
    weight_at = take(padded ? static_cast<std::size_t>(stride * dim) * size_of(dtype) : 0);
    sums_at = take(own_sums ? static_cast<std::size_t>(stride * dim) * sizeof(float) : 0);
    std::size_t scratch = 0;
    for (const std::int64_t r : {chunk, last()})
      for (const GemmSpec& g : {logits_gemm(r), dx_gemm(r), dweight_gemm(r, true)})
        scratch = std::max(scratch, Gemm::workspace(g));
    gemm_at = take(scratch);
  }
  std::int64_t last() const { return rows == 0 ? 0 : rows - (pieces(rows, chunk) - 1) * chunk; }

  GemmSpec logits_gemm(std::int64_t r) const {
    return {.m = r,
            .n = stride,
            .k = dim,
            .trans_b = true,
            .lda = dim,
            .ldb = dim,
            .ldc = stride,
            .input = dtype,
            .output = dtype,
            .tf32 = tf32};
  }
  GemmSpec dx_gemm(std::int64_t r) const {
    return {.m = r,
            .n = dim,
            .k = stride,
            .lda = stride,
            .ldb = dim,
            .ldc = dim,
            .input = dtype,
            .output = dtype,
            .tf32 = tf32};
  }
  GemmSpec dweight_gemm(std::int64_t r, bool accumulate) const {
    return {.m = own_sums ? stride : vocab,
            .n = dim,
            .k = r,
            .trans_a = true,
            .lda = stride,
            .ldb = dim,
            .ldc = dim,
            .input = dtype,
            .output = narrow_dweight && !own_sums ? dtype : DType::f32,
            .tf32 = tf32,
            .accumulate = accumulate};
  }

 private:
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  }
};

template <class T>
class LinearCrossEntropy final : public device::Kernel {
 public:
  explicit LinearCrossEntropy(const ir::KernelSpec& spec) : plan_(spec), scale_(spec.attributes.real("scale")) {
    if (can_hold<T>(plan_.stride))
      TRI_CUDA(cudaFuncSetAttribute(held_rows_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kMaxHeld)));
    for (std::int64_t begin = 0; begin < plan_.rows; begin += plan_.chunk) {
      const std::int64_t r = std::min(plan_.chunk, plan_.rows - begin);
      if (gemms_.empty() || r != plan_.chunk || begin == plan_.chunk)
        gemms_.emplace_back(plan_, r, begin > 0, spec.algorithms);
      chunks_.push_back({begin, r, gemms_.size() - 1});
    }
  }

  void launch(const device::Launch& launch) override {
    const cudaStream_t stream = stream_of(launch);
    auto* const workspace = static_cast<std::byte*>(launch.workspace);
    auto* const losses = reinterpret_cast<float*>(workspace + plan_.losses_at);
    T* const logits = reinterpret_cast<T*>(workspace + plan_.logits_at);
    void* const scratch = workspace + plan_.gemm_at;
    void* const sums = plan_.own_sums ? workspace + plan_.sums_at : plan_.gradients ? launch.outputs[2] : nullptr;
    const void* weight = launch.inputs[1];
    if (plan_.padded) {
      std::byte* const copy = workspace + plan_.weight_at;
      const std::size_t bytes = static_cast<std::size_t>(plan_.vocab * plan_.dim) * sizeof(T);
      TRI_CUDA(cudaMemcpyAsync(copy, weight, bytes, cudaMemcpyDeviceToDevice, stream));
      TRI_CUDA(cudaMemsetAsync(copy + bytes, 0, static_cast<std::size_t>(plan_.stride * plan_.dim) * sizeof(T) - bytes,
                               stream));
      weight = copy;
    }
    const Rows r{launch.in<std::int32_t>(2), plan_.vocab, plan_.stride, nullptr, losses, launch.in<float>(3), scale_};
    for (const Chunk& c : chunks_) {
      const T* x = launch.in<T>(0) + c.begin * plan_.dim;
      const Gemms& g = gemms_[c.gemms];
      g.logits.run(stream, x, weight, logits, scratch);
      const unsigned threads = row_threads(plan_.vocab);
      if (!plan_.gradients) {
        rows_kernel<true, false, T><<<blocks(c.rows), threads, 0, stream>>>(logits, logits, r, c.begin);
        continue;
      }
      if (can_hold<T>(plan_.stride))
        held_rows_kernel<T>
            <<<blocks(c.rows), kHeldThreads, static_cast<std::size_t>(plan_.stride) * sizeof(T), stream>>>(logits, r,
                                                                                                           c.begin);
      else
        rows_kernel<true, true, T><<<blocks(c.rows), threads, 0, stream>>>(logits, logits, r, c.begin);
      g.dx.run(stream, logits, weight, launch.out<T>(1) + c.begin * plan_.dim, scratch);
      g.dweight.run(stream, logits, x, sums, scratch);
    }
    sum_kernel<<<1, 1024, 0, stream>>>(losses, plan_.rows, scale_, launch.out<float>(0));
    if (plan_.own_sums)
      round_kernel<T><<<blocks(pieces(plan_.vocab * plan_.dim, 256)), 256, 0, stream>>>(
          static_cast<const float*>(sums), launch.out<T>(2), plan_.vocab * plan_.dim);
    device::cuda::launched("linear_cross_entropy");
  }

 private:
  struct Gemms {
    Gemm logits, dx, dweight;
    Gemms(const Plan& p, std::int64_t r, bool accumulate, device::Algorithms* run)
        : logits(p.logits_gemm(r), run), dx(p.dx_gemm(r), run), dweight(p.dweight_gemm(r, accumulate), run) {}
  };
  struct Chunk {
    std::int64_t begin, rows;
    std::size_t gemms;
  };
  Plan plan_;
  double scale_;
  std::vector<Gemms> gemms_;
  std::vector<Chunk> chunks_;
};

}  // namespace

std::size_t linear_cross_entropy_workspace_cuda(const ir::KernelSpec& spec) { return Plan(spec).bytes; }

std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<LinearCrossEntropy<T>>(spec);
  });
}

std::size_t cross_entropy_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(spec.inputs[1].elements()) * sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_cross_entropy_cuda(const ir::KernelSpec& spec) {
  const std::int64_t rows = spec.inputs[1].elements(), vocab = spec.inputs[0].shape.back();
  const double scale = spec.attributes.real("scale");
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      auto* const losses = static_cast<float*>(launch.workspace);
      const Rows r{launch.in<std::int32_t>(1), vocab, vocab, launch.out<float>(1), losses, nullptr, scale};
      if (rows > 0)
        rows_kernel<true, false, T><<<blocks(rows), row_threads(vocab), 0, stream_of(launch)>>>(
            launch.in<T>(0), static_cast<T*>(nullptr), r, 0);
      sum_kernel<<<1, 1024, 0, stream_of(launch)>>>(losses, rows, scale, launch.out<float>(0));
      device::cuda::launched("cross_entropy");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_cross_entropy_grad_cuda(const ir::KernelSpec& spec) {
  const std::int64_t rows = spec.inputs[1].elements(), vocab = spec.inputs[0].shape.back();
  const double scale = spec.attributes.real("scale");
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (rows == 0) return;
      const Rows r{launch.in<std::int32_t>(1), vocab, vocab, const_cast<float*>(launch.in<float>(2)), nullptr,
                   launch.in<float>(3),        scale};
      rows_kernel<false, true, T>
          <<<blocks(rows), row_threads(vocab), 0, stream_of(launch)>>>(launch.in<T>(0), launch.out<T>(0), r, 0);
      device::cuda::launched("cross_entropy_grad");
    });
  });
}

}  // namespace trireme::ops
