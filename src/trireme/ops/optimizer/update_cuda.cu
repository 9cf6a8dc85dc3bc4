#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/optimizer/clip.h"

// What decides about updates: norm, clipping, finiteness, loss scale.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// Sums of squares in f64, a chunk of kSumChunk elements to a block; squares of large f32 values overflow f32. A tensor
// of one chunk is done with it: `total` is then given.
template <class T>
__global__ void squares_kernel(const T* x, std::int64_t n, double* partials, float* total) {
  __shared__ double shared[32];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSumChunk;
  const std::int64_t end = begin + kSumChunk < n ? begin + kSumChunk : n;
  constexpr int N = kWidest<T>;
  double sum = 0;
  const bool fits = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
  const std::int64_t whole = fits ? begin + (end - begin) / N * N : begin;
  for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x) * N; i < whole;
       i += static_cast<std::int64_t>(blockDim.x) * N) {
    const Pack<T, N> pack = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const double v = wide(pack.v[j]);
      sum += v * v;
    }
  }
  for (std::int64_t i = whole + threadIdx.x; i < end; i += blockDim.x) {
    const double v = wide(x[i]);
    sum += v * v;
  }
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x != 0) return;
  if (total != nullptr)
    *total = static_cast<float>(sum);
  else
    partials[blockIdx.x] = sum;
}

// The chunks are added in order, by one thread; all fetch them.
__global__ void join_squares_kernel(const double* partials, std::int64_t chunks, const double* before, double* part,
                                    float* total) {
  __shared__ double shared[kThreads];
  double sum = before != nullptr ? *before : 0;
  for (std::int64_t c = 0; c < chunks; c += kThreads) {
    if (c + threadIdx.x < chunks) shared[threadIdx.x] = partials[c + threadIdx.x];
    __syncthreads();
    const int count = chunks - c < kThreads ? static_cast<int>(chunks - c) : kThreads;
    if (threadIdx.x == 0)
      for (int k = 0; k < count; ++k) sum += shared[k];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  if (part != nullptr)
    *part = sum;
  else
    *total = static_cast<float>(sum);
}

__global__ void clip_scale_kernel(const float* total, const float* loss, const float* unit, double max_norm,
                                  float* norm_out, float* factor_out, float* finite_out) {
  const double u = unit != nullptr ? *unit : 1.0;
  const double norm = sqrt(static_cast<double>(*total)) / u;
  const bool finite = isfinite(*total) && isfinite(*loss);
  const double factor = (max_norm > 0 ? fmin(1.0, max_norm / (norm + 1e-6)) : 1.0) / u;
  *norm_out = static_cast<float>(norm);
  *factor_out = finite ? static_cast<float>(factor) : 0.0F;
  *finite_out = finite ? 1.0F : 0.0F;
}

__global__ void adaptive_scale_kernel(const float* in_scale, const float* in_good, const float* in_bad,
                                      const float* in_finite, float window, float low, float high, float* out_scale,
                                      float* out_good, float* out_bad) {
  const float scale = *in_scale, good = *in_good, bad = *in_bad;
  const bool finite = *in_finite != 0;
  const bool grow = finite && good + 1 >= window;
  *out_scale = !finite ? fmaxf(low, scale / 2) : grow ? fminf(high, scale * 2) : scale;
  *out_good = !finite || grow ? 0.0F : good + 1;
  *out_bad = finite ? bad : bad + 1;
}

std::int64_t chunks_of(const ir::KernelSpec& spec) { return pieces(spec.inputs[0].elements(), kSumChunk); }

}  // namespace

std::size_t sum_squares_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(chunks_of(spec)) * sizeof(double);
}

std::shared_ptr<device::Kernel> prepare_sum_squares_cuda(const ir::KernelSpec& spec) {
  const bool part = spec.outputs[0].dtype == DType::f64;
  const bool more = spec.inputs.size() > 1 && spec.inputs[1].present;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=, n = spec.inputs[0].elements(), chunks = chunks_of(spec)](const device::Launch& launch) {
      auto* partials = static_cast<double*>(launch.workspace);
      const bool alone = chunks == 1 && !part && !more;
      if (chunks > 0)
        squares_kernel<T><<<blocks(chunks), kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), n, partials,
                                                                              alone ? launch.out<float>(0) : nullptr);
      if (!alone)
        join_squares_kernel<<<1, kThreads, 0, stream_of(launch)>>>(
            partials, chunks, more ? launch.in<double>(1) : nullptr, part ? launch.out<double>(0) : nullptr,
            launch.out<float>(0));
      device::cuda::launched("sum_squares");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_clip_scale_cuda(const ir::KernelSpec& spec) {
  return make_kernel([max_norm = spec.attributes.real("max_norm")](const device::Launch& launch) {
    clip_scale_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.in<float>(0), launch.in<float>(1), launch.in<float>(2),
                                                      max_norm, launch.out<float>(0), launch.out<float>(1),
                                                      launch.out<float>(2));
    device::cuda::launched("clip_scale");
  });
}

std::shared_ptr<device::Kernel> prepare_adaptive_scale_cuda(const ir::KernelSpec& spec) {
  const auto window = static_cast<float>(spec.attributes.integer("window"));
  const auto low = static_cast<float>(spec.attributes.real("low"));
  const auto high = static_cast<float>(spec.attributes.real("high"));
  return make_kernel([=](const device::Launch& launch) {
    adaptive_scale_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.in<float>(0), launch.in<float>(1), launch.in<float>(2),
                                                          launch.in<float>(3), window, low, high, launch.out<float>(0),
                                                          launch.out<float>(1), launch.out<float>(2));
    device::cuda::launched("adaptive_scale");
  });
}

}  // namespace trireme::ops
