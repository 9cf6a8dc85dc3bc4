#include <cmath>

#include "trireme/ops/cuda/common.h"
#include "trireme/ops/optimizer/cuda_kernels.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

struct Scalars {
  const float *lr, *step, *finite;
  double beta1, weight_decay;
  float root_scale, eps;
};

template <class D, class L>
__global__ void descend_kernel(const float* p, const D* direction, const float* variance, const float* keep, Scalars s,
                               float* new_p, L* low, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  float value = p[i];
  if (*s.finite != 0) {
    const double lr = *s.lr;
    const double first = s.step == nullptr ? 1.0 : 1 - pow(s.beta1, static_cast<double>(*s.step));
    float along = wide(direction[i]);
    if (variance != nullptr) along /= fmaf(sqrtf(variance[i]), s.root_scale, s.eps);
    value = fmaf(-static_cast<float>(lr / first), along, value * static_cast<float>(1 - lr * s.weight_decay));
  }
  if (keep != nullptr) value *= keep[i];
  new_p[i] = value;
  if (low != nullptr) low[i] = narrow<L>(value);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_descend_cuda(const ir::KernelSpec& spec) {
  const ir::Attributes& a = spec.attributes;
  const Scalars scalars{nullptr,
                        nullptr,
                        nullptr,
                        a.real("beta1"),
                        a.real("weight_decay"),
                        static_cast<float>(std::sqrt(a.real("variance_scale"))),
                        static_cast<float>(a.real("eps"))};
  const bool has_low = spec.outputs.size() > 1;
  return dispatch_native(spec.inputs[1].dtype, [&]<class D>(D) {
    return dispatch_native(has_low ? spec.outputs[1].dtype : DType::f32,
                           [&]<class L>(L) -> std::shared_ptr<device::Kernel> {
                             return make_kernel([=, n = spec.inputs[0].elements()](const device::Launch& launch) {
                               if (n == 0) return;
                               Scalars s = scalars;
                               s.lr = launch.in<float>(3);
                               s.step = launch.in<float>(4);
                               s.finite = launch.in<float>(5);
                               descend_kernel<D, L><<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
                                   launch.in<float>(0), launch.in<D>(1), launch.in<float>(2), launch.in<float>(6), s,
                                   launch.out<float>(0), has_low ? launch.out<L>(1) : nullptr, n);
                               device::cuda::launched("descend");
                             });
                           });
  });
}

}  // namespace trireme::ops
