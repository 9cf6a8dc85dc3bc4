#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/sum.h"
#include "trireme/ops/loss/cuda_kernels.h"

// mean_absolute_error, squared_error and their gradients.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr std::int64_t kChunk = 8192;  // elements that a block sums

struct Absolute {
  static __device__ float value(float e) { return fabsf(e); }
  // Equal values pull nowhere; NaN stays NaN.
  static __device__ float slope(float e) { return e > 0 ? 1.0F : e < 0 ? -1.0F : e; }
};
struct Square {
  static __device__ float value(float e) { return e * e; }
  static __device__ float slope(float e) { return e + e; }
};

template <class E, class T>
__global__ void loss_kernel(const T* pred, const T* target, std::int64_t n, double* partials) {
  __shared__ double shared[32];
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    sum += static_cast<double>(E::value(wide(pred[i]) - wide(target[i])));
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class E, class T>
__global__ void gradient_kernel(const T* pred, const T* target, const float* dloss, double scale, std::int64_t n,
                                T* gradient) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const auto factor = static_cast<float>(scale * static_cast<double>(*dloss));
  gradient[i] = narrow<T>(factor * E::slope(wide(pred[i]) - wide(target[i])));
}

template <class E>
std::shared_ptr<device::Kernel> loss(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel(
        [n = spec.inputs[0].elements(), scale = spec.attributes.real("scale")](const device::Launch& launch) {
          auto* const partials = static_cast<double*>(launch.workspace);
          if (n > 0)
            loss_kernel<E, T><<<blocks(pieces(n, kChunk)), kThreads, 0, stream_of(launch)>>>(
                launch.in<T>(0), launch.in<T>(1), n, partials);
          sum_kernel<<<1, 1024, 0, stream_of(launch)>>>(partials, pieces(n, kChunk), scale, launch.out<float>(0));
          device::cuda::launched("loss");
        });
  });
}

template <class E>
std::shared_ptr<device::Kernel> gradient(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel(
        [n = spec.inputs[0].elements(), scale = spec.attributes.real("scale")](const device::Launch& launch) {
          if (n == 0) return;
          gradient_kernel<E, T><<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
              launch.in<T>(0), launch.in<T>(1), launch.in<float>(2), scale, n, launch.out<T>(0));
          device::cuda::launched("loss gradient");
        });
  });
}

}  // namespace

std::size_t regression_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(pieces(spec.inputs[0].elements(), kChunk)) * sizeof(double);
}
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_cuda(const ir::KernelSpec& s) { return loss<Absolute>(s); }
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_grad_cuda(const ir::KernelSpec& s) {
  return gradient<Absolute>(s);
}
std::shared_ptr<device::Kernel> prepare_squared_error_cuda(const ir::KernelSpec& s) { return loss<Square>(s); }
std::shared_ptr<device::Kernel> prepare_squared_error_grad_cuda(const ir::KernelSpec& s) { return gradient<Square>(s); }

}  // namespace trireme::ops
