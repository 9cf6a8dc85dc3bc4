#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/cuda/common.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 1024;
// Below this part of its length, what is left of a column is the rounding of f32.
constexpr double kDependent = 1e-6;

__device__ double product(const double* a, const double* b, std::int64_t n, double* shared) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += a[i] * b[i];
  return block_reduce<Add>(sum, shared);
}

// Takes from column `c` what it has of those before it; gives its length then. Each thread has its own elements.
__device__ double clear(double* columns, std::int64_t c, std::int64_t n, double* shared) {
  double* x = columns + c * n;
  for (int round = 0; round < 2; ++round)
    for (std::int64_t k = 0; k < c; ++k) {
      const double* q = columns + k * n;
      const double along = product(x, q, n, shared);
      for (std::int64_t i = threadIdx.x; i < n; i += kThreads) x[i] -= along * q[i];
    }
  return sqrt(product(x, x, n, shared));
}

// There is one with at least this length left, since the squares of all of them sum up to n − c.
__device__ double unit_vector(double* columns, std::int64_t c, std::int64_t n, double* shared) {
  const double enough = sqrt(0.5 * static_cast<double>(n - c) / static_cast<double>(n));
  double length = 0;
  for (std::int64_t k = 0; k < n && !(length >= enough); ++k) {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) columns[c * n + i] = i == k ? 1 : 0;
    length = clear(columns, c, n, shared);
  }
  return length;
}

// One block does it all: the columns are few.
__global__ void orthonormalise_kernel(const float* x, float* y, double* columns, std::int64_t n, std::int64_t r) {
  __shared__ double shared[32];
  for (std::int64_t c = 0; c < r; ++c)
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) columns[c * n + i] = static_cast<double>(x[i * r + c]);
  for (std::int64_t c = 0; c < r; ++c) {
    const double before = sqrt(product(columns + c * n, columns + c * n, n, shared));
    double length = clear(columns, c, n, shared);
    if (length <= kDependent * before) length = unit_vector(columns, c, n, shared);
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) columns[c * n + i] /= length;
  }
  for (std::int64_t c = 0; c < r; ++c)
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) y[i * r + c] = static_cast<float>(columns[c * n + i]);
}

}  // namespace

std::size_t orthonormalise_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(spec.inputs[0].elements()) * sizeof(double);
}

std::shared_ptr<device::Kernel> prepare_orthonormalise_cuda(const ir::KernelSpec& spec) {
  return make_kernel([n = spec.inputs[0].shape[0], r = spec.inputs[0].shape[1]](const device::Launch& launch) {
    orthonormalise_kernel<<<1, kThreads, 0, stream_of(launch)>>>(launch.in<float>(0), launch.out<float>(0),
                                                                 static_cast<double*>(launch.workspace), n, r);
    device::cuda::launched("orthonormalise");
  });
}

}  // namespace trireme::ops
