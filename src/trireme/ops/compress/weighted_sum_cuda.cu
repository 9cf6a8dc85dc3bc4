#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/cuda/common.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

template <class T>
__global__ void weighted_sum_kernel(const float* a, const T* b, const float* times, const float* over, float a_weight,
                                    double b_weight, float* y, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  if (times != nullptr) b_weight *= static_cast<double>(*times);
  if (over != nullptr) b_weight /= static_cast<double>(*over);
  const float second = static_cast<float>(b_weight) * wide(b[i]);
  y[i] = a == nullptr ? second : fmaf(a_weight, a[i], second);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_weighted_sum_cuda(const ir::KernelSpec& spec) {
  const auto a_weight = static_cast<float>(spec.attributes.real("a_weight"));
  const double b_weight = spec.attributes.real("b_weight");
  return dispatch_native(spec.inputs[1].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=, n = spec.outputs[0].elements()](const device::Launch& launch) {
      if (n == 0) return;
      weighted_sum_kernel<T><<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
          launch.in<float>(0), launch.in<T>(1), launch.in<float>(2), launch.in<float>(3), a_weight, b_weight,
          launch.out<float>(0), n);
      device::cuda::launched("weighted_sum");
    });
  });
}

}  // namespace trireme::ops
