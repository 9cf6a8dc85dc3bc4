#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/sum.h"
#include "trireme/ops/loss/cuda_kernels.h"

// kl_divergence and its gradient: a block takes a row.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// The largest of a row and Σ exp(factor · (x − largest)).
struct ExpSum {
  float top;
  double sum;
  __device__ double log_sum(float factor) const {
    return static_cast<double>(factor) * static_cast<double>(top) + log(sum);
  }
};

template <class T>
__device__ ExpSum exp_sum(const T* x, std::int64_t n, float factor, float* shared, double* sums) {
  float top = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) top = fmaxf(top, wide(x[i]));
  top = block_reduce<Largest>(top, shared);
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
    sum += static_cast<double>(expf(factor * (wide(x[i]) - top)));
  return {top, block_reduce<Add>(sum, sums)};
}

template <class T>
__global__ void loss_kernel(const T* students, const T* teachers, std::int64_t n, float factor, double* losses) {
  __shared__ float shared[32];
  __shared__ double sums[32];
  const T* student = students + blockIdx.x * n;
  const T* teacher = teachers + blockIdx.x * n;
  const ExpSum q = exp_sum(student, n, factor, shared, sums);
  const ExpSum p = exp_sum(teacher, n, factor, shared, sums);
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float t = wide(teacher[i]);
    total += static_cast<double>(expf(factor * (t - p.top)) * (factor * (t - wide(student[i]))));
  }
  total = block_reduce<Add>(total, sums);
  if (threadIdx.x == 0) losses[blockIdx.x] = total / p.sum - (p.log_sum(factor) - q.log_sum(factor));
}

// May be in place of either operand: a row is read before it is written, each element by the thread that writes it.
template <class T>
__global__ void gradient_kernel(const T* students, const T* teachers, const float* dloss, std::int64_t n, float factor,
                                double scale, T* gradients) {
  __shared__ float shared[32];
  __shared__ double sums[32];
  const T* student = students + blockIdx.x * n;
  const T* teacher = teachers + blockIdx.x * n;
  const ExpSum q = exp_sum(student, n, factor, shared, sums);
  const ExpSum p = exp_sum(teacher, n, factor, shared, sums);
  const double weight = scale * static_cast<double>(factor) * static_cast<double>(*dloss);
  const auto q_weight = static_cast<float>(weight / q.sum);
  const auto p_weight = static_cast<float>(weight / p.sum);
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
    gradients[blockIdx.x * n + i] = narrow<T>(expf(factor * (wide(student[i]) - q.top)) * q_weight -
                                              expf(factor * (wide(teacher[i]) - p.top)) * p_weight);
}

struct Shape {
  std::int64_t rows, width;
  float factor;
  double scale;
  explicit Shape(const ir::KernelSpec& spec)
      : rows(spec.inputs[0].elements() / spec.inputs[0].shape.back()),
        width(spec.inputs[0].shape.back()),
        factor(static_cast<float>(1 / spec.attributes.real("temperature"))),
        scale(spec.attributes.real("scale")) {}
};

}  // namespace

std::size_t kl_divergence_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(Shape(spec).rows) * sizeof(double);
}

std::shared_ptr<device::Kernel> prepare_kl_divergence_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([s = Shape(spec)](const device::Launch& launch) {
      auto* const losses = static_cast<double*>(launch.workspace);
      if (s.rows > 0)
        loss_kernel<T><<<blocks(s.rows), kThreads, 0, stream_of(launch)>>>(launch.in<T>(0), launch.in<T>(1), s.width,
                                                                           s.factor, losses);
      sum_kernel<<<1, 1024, 0, stream_of(launch)>>>(losses, s.rows, s.scale, launch.out<float>(0));
      device::cuda::launched("kl_divergence");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_kl_divergence_grad_cuda(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([s = Shape(spec)](const device::Launch& launch) {
      if (s.rows == 0) return;
      gradient_kernel<T><<<blocks(s.rows), kThreads, 0, stream_of(launch)>>>(
          launch.in<T>(0), launch.in<T>(1), launch.in<float>(2), s.width, s.factor, s.scale, launch.out<T>(0));
      device::cuda::launched("kl_divergence_grad");
    });
  });
}

}  // namespace trireme::ops
