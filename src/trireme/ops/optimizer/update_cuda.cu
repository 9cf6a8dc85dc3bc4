#include "trireme/ops/cuda/common.h"
#include "trireme/ops/optimizer/cuda_kernels.h"

// What decides about updates: clipping, finiteness, loss scale.
namespace trireme::ops {
namespace {

using namespace cuda;

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

}  // namespace

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
