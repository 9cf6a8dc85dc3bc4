#include "trireme/device/cuda/gemm.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/sum.h"
#include "trireme/ops/loss/cuda_kernels.h"

// linear_lse and linear_cross_entropy_given: the halves of a loss whose weight is sharded over ranks by rows.
namespace trireme::ops {
namespace {

using namespace cuda;
using device::cuda::Gemm;
using device::cuda::GemmSpec;

constexpr int kThreads = 256;

// Which words a rank's rows of the weight are.
struct Words {
  const std::int64_t* place;
  std::int64_t rows, all;

  __device__ std::int64_t first() const { return *place * rows; }
  // Of the rows, those that are words: the others are padding.
  __device__ std::int64_t here() const {
    const std::int64_t left = all - first();
    return left < 0 ? 0 : left < rows ? left : rows;
  }
};

// A block takes a row of logits. A target beyond the vocabulary makes the loss NaN, which stops the run with a search
// for the cause.
template <class T>
__global__ void lse_kernel(const T* logits, std::int64_t stride, Words words, const std::int32_t* targets, float* lse,
                           float* at_target, std::int64_t first) {
  __shared__ float shared[32];
  const std::int64_t row = first + blockIdx.x;
  const T* x = logits + static_cast<std::int64_t>(blockIdx.x) * stride;
  const std::int64_t n = words.here();
  float top = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, wide(x[i]));
  top = block_reduce<Largest>(top, shared);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += expf(wide(x[i]) - top);
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x != 0) return;
  const std::int64_t own = targets[row] - words.first();
  lse[row] = n == 0 ? -INFINITY : top + logf(sum);
  at_target[row] = targets[row] >= words.all ? nanf("") : own >= 0 && own < n ? wide(x[own]) : 0.0F;
}

// The gradient of the logits in their place.
template <class T>
__global__ void gradient_kernel(T* logits, std::int64_t stride, Words words, const std::int32_t* targets,
                                const float* lse, const float* at_target, const float* dloss, double scale,
                                std::int64_t first) {
  const std::int64_t row = first + blockIdx.x;
  T* x = logits + static_cast<std::int64_t>(blockIdx.x) * stride;
  const std::int64_t n = words.here();
  const bool counted = targets[row] >= 0;
  const auto weight =
      static_cast<float>(scale * (dloss != nullptr ? static_cast<double>(*dloss) : 1.0)) * (counted ? 1.0F : 0.0F);
  const std::int64_t own = targets[row] - words.first();
  for (std::int64_t i = threadIdx.x; i < stride; i += blockDim.x) {
    float p = i < n && counted ? expf(wide(x[i]) - lse[row]) : 0.0F;
    if (i < n && i == own && counted) p = expf(at_target[row] - lse[row]) - 1.0F;
    x[i] = narrow<T>(weight * p);
  }
}

__global__ void losses_kernel(const std::int32_t* targets, const float* lse, const float* target, float* losses,
                              std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) losses[i] = targets[i] >= 0 ? lse[i] - target[i] : 0.0F;
}

template <class T>
__global__ void narrow_kernel(const float* x, T* y, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = narrow<T>(x[i]);
}

// Rows of the logits in a chunk: as many as keep them at half a GiB in 16 bits.
struct Plan {
  std::int64_t rows, vocab, dim, stride, chunk;
  bool gradients, tf32, own_sums, narrow_dweight;
  DType dtype;
  std::size_t losses_at = 0, logits_at = 0, sums_at = 0, gemm_at = 0, bytes = 0;

  Plan(const ir::KernelSpec& spec, bool with_gradients)
      : rows(spec.inputs[2].elements()),
        vocab(spec.inputs[1].shape[0]),
        dim(spec.inputs[1].shape[1]),
        stride(pieces(vocab, 64) * 64),
        chunk(spec.attributes.integer("chunk")),
        gradients(with_gradients),
        tf32(spec.attributes.boolean("tf32")),
        dtype(spec.inputs[0].dtype) {
    constexpr std::int64_t kElements = std::int64_t{1} << 28;
    if (chunk == 0) chunk = std::max<std::int64_t>(128, kElements / stride);
    chunk = std::max<std::int64_t>(1, std::min(chunk, rows));
    narrow_dweight = gradients && spec.outputs[2].dtype != DType::f32;
    own_sums = narrow_dweight && chunk < rows;
    losses_at = take(static_cast<std::size_t>(rows) * sizeof(float));
    logits_at = take(static_cast<std::size_t>(chunk * stride) * size_of(dtype));
    sums_at = take(own_sums ? static_cast<std::size_t>(vocab * dim) * sizeof(float) : 0);
    std::size_t most = 0;
    for (const std::int64_t r : {chunk, last()})
      for (const GemmSpec& g : {logits_gemm(r), dx_gemm(r), dweight_gemm(r, true)})
        most = std::max(most, Gemm::workspace(g));
    gemm_at = take(most);
  }
  std::int64_t last() const { return rows == 0 ? 0 : rows - (pieces(rows, chunk) - 1) * chunk; }

  GemmSpec logits_gemm(std::int64_t r) const {
    GemmSpec g = gemm(r, vocab, dim);
    g.trans_b = true;
    g.lda = dim, g.ldb = dim, g.ldc = stride;
    return g;
  }
  GemmSpec dx_gemm(std::int64_t r) const {
    GemmSpec g = gemm(r, dim, vocab);
    g.lda = stride, g.ldb = dim, g.ldc = dim;
    return g;
  }
  GemmSpec dweight_gemm(std::int64_t r, bool accumulate) const {
    GemmSpec g = gemm(vocab, dim, r);
    g.trans_a = true;
    g.lda = stride, g.ldb = dim, g.ldc = dim;
    g.output = narrow_dweight && !own_sums ? dtype : DType::f32;
    g.accumulate = accumulate;
    return g;
  }

 private:
  GemmSpec gemm(std::int64_t m, std::int64_t n, std::int64_t k) const {
    GemmSpec g{};
    g.m = m, g.n = n, g.k = k;
    g.input = dtype, g.output = dtype, g.tf32 = tf32;
    return g;
  }
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  }
};

template <class T, class F>
void each_chunk(const Plan& plan, F&& f) {
  for (std::int64_t begin = 0; begin < plan.rows; begin += plan.chunk)
    f(begin, std::min(plan.chunk, plan.rows - begin));
}

template <class T>
class LinearLse final : public device::Kernel {
 public:
  explicit LinearLse(const ir::KernelSpec& spec) : plan_(spec, false), words_(spec.attributes.integer("vocab")) {
    if (plan_.rows == 0) return;
    for (const std::int64_t r : {plan_.chunk, plan_.last()}) gemms_.emplace_back(plan_.logits_gemm(r), spec.algorithms);
  }

  void launch(const device::Launch& launch) override {
    const cudaStream_t stream = stream_of(launch);
    auto* const workspace = static_cast<std::byte*>(launch.workspace);
    T* const logits = reinterpret_cast<T*>(workspace + plan_.logits_at);
    const Words words{launch.in<std::int64_t>(3), plan_.vocab, words_};
    each_chunk<T>(plan_, [&](std::int64_t begin, std::int64_t rows) {
      gemms_[rows == plan_.chunk ? 0 : 1].run(stream, launch.in<T>(0) + begin * plan_.dim, launch.inputs[1], logits,
                                              workspace + plan_.gemm_at);
      lse_kernel<T><<<blocks(rows), kThreads, 0, stream>>>(logits, plan_.stride, words, launch.in<std::int32_t>(2),
                                                           launch.out<float>(0), launch.out<float>(1), begin);
    });
    device::cuda::launched("linear_lse");
  }

 private:
  Plan plan_;
  std::int64_t words_;
  std::vector<Gemm> gemms_;
};

template <class T>
class LinearCrossEntropyGiven final : public device::Kernel {
 public:
  explicit LinearCrossEntropyGiven(const ir::KernelSpec& spec)
      : plan_(spec, spec.attributes.boolean("with_gradients")),
        scale_(spec.attributes.real("scale")),
        words_(spec.attributes.integer("vocab")) {
    if (!plan_.gradients) return;
    each_chunk<T>(plan_, [&](std::int64_t begin, std::int64_t rows) {
      gemms_.push_back({Gemm(plan_.logits_gemm(rows), spec.algorithms), Gemm(plan_.dx_gemm(rows), spec.algorithms),
                        Gemm(plan_.dweight_gemm(rows, begin > 0), spec.algorithms)});
    });
  }

  void launch(const device::Launch& launch) override {
    const cudaStream_t stream = stream_of(launch);
    auto* const workspace = static_cast<std::byte*>(launch.workspace);
    auto* const losses = reinterpret_cast<float*>(workspace + plan_.losses_at);
    const auto* targets = launch.in<std::int32_t>(2);
    if (plan_.rows > 0)
      losses_kernel<<<blocks(pieces(plan_.rows, kThreads)), kThreads, 0, stream>>>(
          targets, launch.in<float>(4), launch.in<float>(5), losses, plan_.rows);
    sum_kernel<<<1, 1024, 0, stream>>>(losses, plan_.rows, scale_, launch.out<float>(0));
    if (plan_.gradients) gradients(launch, stream, workspace);
    device::cuda::launched("linear_cross_entropy_given");
  }

 private:
  void gradients(const device::Launch& launch, cudaStream_t stream, std::byte* workspace) const {
    T* const logits = reinterpret_cast<T*>(workspace + plan_.logits_at);
    void* const scratch = workspace + plan_.gemm_at;
    void* const sums = plan_.own_sums ? workspace + plan_.sums_at : launch.outputs[2];
    const Words words{launch.in<std::int64_t>(3), plan_.vocab, words_};
    std::size_t chunk = 0;
    each_chunk<T>(plan_, [&](std::int64_t begin, std::int64_t rows) {
      const Gemms& g = gemms_[chunk++];
      const T* x = launch.in<T>(0) + begin * plan_.dim;
      g.logits.run(stream, x, launch.inputs[1], logits, scratch);
      gradient_kernel<T><<<blocks(rows), kThreads, 0, stream>>>(logits, plan_.stride, words, launch.in<std::int32_t>(2),
                                                                launch.in<float>(4), launch.in<float>(5),
                                                                launch.in<float>(6), scale_, begin);
      g.dx.run(stream, logits, launch.inputs[1], launch.out<T>(1) + begin * plan_.dim, scratch);
      g.dweight.run(stream, logits, x, sums, scratch);
    });
    if (plan_.own_sums)
      narrow_kernel<T><<<blocks(pieces(plan_.vocab * plan_.dim, kThreads)), kThreads, 0, stream>>>(
          static_cast<const float*>(sums), launch.out<T>(2), plan_.vocab * plan_.dim);
  }

  struct Gemms {
    Gemm logits, dx, dweight;
  };
  Plan plan_;
  double scale_;
  std::int64_t words_;
  std::vector<Gemms> gemms_;
};

// f(a, b) of each element.
template <class F>
__global__ void pairs_kernel(const float* a, const float* b, float* y, F f, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(a[i], b[i]);
}

struct LseTerm {
  __device__ float operator()(float lse, float top) const { return lse == -INFINITY ? 0.0F : expf(lse - top); }
};
struct JoinLse {
  __device__ float operator()(float sum, float top) const { return top + logf(sum); }
};

template <class F>
std::shared_ptr<device::Kernel> prepare_pairs(const ir::KernelSpec& spec, F f, const char* name) {
  return make_kernel([=, n = spec.outputs[0].elements()](const device::Launch& launch) {
    if (n == 0) return;
    pairs_kernel<<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
        launch.in<float>(0), launch.in<float>(1), launch.out<float>(0), f, n);
    device::cuda::launched(name);
  });
}

}  // namespace

std::size_t linear_lse_workspace_cuda(const ir::KernelSpec& spec) { return Plan(spec, false).bytes; }

std::shared_ptr<device::Kernel> prepare_linear_lse_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<LinearLse<T>>(spec);
  });
}

std::size_t linear_cross_entropy_given_workspace_cuda(const ir::KernelSpec& spec) {
  return Plan(spec, spec.attributes.boolean("with_gradients")).bytes;
}

std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_given_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<LinearCrossEntropyGiven<T>>(spec);
  });
}

std::shared_ptr<device::Kernel> prepare_lse_terms_cuda(const ir::KernelSpec& spec) {
  return prepare_pairs(spec, LseTerm{}, "lse_terms");
}

std::shared_ptr<device::Kernel> prepare_join_lse_cuda(const ir::KernelSpec& spec) {
  return prepare_pairs(spec, JoinLse{}, "join_lse");
}

}  // namespace trireme::ops
