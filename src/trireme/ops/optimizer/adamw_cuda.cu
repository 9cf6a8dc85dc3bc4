#include "trireme/ops/optimizer/cuda_kernels.h"
#include "trireme/ops/optimizer/update_cuda.cuh"

namespace trireme::ops {
namespace {

struct AdamW {
  static constexpr int kStates = 2;
  static constexpr int kAtOnce = 2;
  static constexpr const char* kName = "adamw";

  struct Common {
    const float *lr, *step, *clip, *finite;
    double beta1, beta2;
    float eps;
    bool operator==(const Common&) const = default;
  };
  struct Factors {
    float clip, rate, root, eps, beta1, take1, beta2, take2, decay;
    bool finite;
  };

  double beta1, beta2;
  float eps;

  explicit AdamW(const ir::KernelSpec& spec)
      : beta1(spec.attributes.real("beta1")),
        beta2(spec.attributes.real("beta2")),
        eps(static_cast<float>(spec.attributes.real("eps"))) {}

  Common common(const device::Launch& l, std::size_t scalars) const {
    return {l.in<float>(scalars),
            l.in<float>(scalars + 1),
            l.in<float>(scalars + 2),
            l.in<float>(scalars + 3),
            beta1,
            beta2,
            eps};
  }

  static __device__ __forceinline__ Factors factors(const Common& c, float weight_decay) {
    // The powers are the same for every thread: one computes them.
    __shared__ float rate, root;
    if (threadIdx.x == 0) {
      rate = static_cast<float>(static_cast<double>(*c.lr) / (1 - pow(c.beta1, static_cast<double>(*c.step))));
      root = static_cast<float>(1 / sqrt(1 - pow(c.beta2, static_cast<double>(*c.step))));
    }
    __syncthreads();
    return {*c.clip,
            rate,
            root,
            c.eps,
            static_cast<float>(c.beta1),
            static_cast<float>(1 - c.beta1),
            static_cast<float>(c.beta2),
            static_cast<float>(1 - c.beta2),
            static_cast<float>(1 - static_cast<double>(*c.lr) * static_cast<double>(weight_decay)),
            *c.finite != 0};
  }

  static __device__ __forceinline__ void step(const Factors& f, float (&x)[3], float gradient) {
    auto& [p, m, v] = x;
    const float g = gradient * f.clip;
    m = fmaf(f.take1, g, f.beta1 * m);
    v = fmaf(f.take2 * g, g, f.beta2 * v);
    p = fmaf(-f.rate, m / fmaf(sqrtf(v), f.root, f.eps), p * f.decay);
  }
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_adamw_cuda(const ir::KernelSpec& spec) {
  return std::make_shared<cuda::Update<AdamW>>(spec);
}

}  // namespace trireme::ops
