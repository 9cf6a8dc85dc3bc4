#include "trireme/ops/optimizer/cuda_kernels.h"
#include "trireme/ops/optimizer/update_cuda.cuh"

namespace trireme::ops {
namespace {

struct Sgd {
  static constexpr int kStates = 1;
  static constexpr int kAtOnce = 4;
  static constexpr const char* kName = "sgd";

  struct Common {
    const float *lr, *clip, *finite;
    float momentum;
    bool operator==(const Common&) const = default;
  };
  struct Factors {
    float lr, clip, momentum, decay;
    bool finite;
  };

  float momentum;

  explicit Sgd(const ir::KernelSpec& spec) : momentum(static_cast<float>(spec.attributes.real("momentum"))) {}

  Common common(const device::Launch& l, std::size_t scalars) const {
    return {l.in<float>(scalars), l.in<float>(scalars + 1), l.in<float>(scalars + 2), momentum};
  }

  static __device__ __forceinline__ Factors factors(const Common& c, float weight_decay) {
    return {*c.lr, *c.clip, c.momentum,
            static_cast<float>(1 - static_cast<double>(*c.lr) * static_cast<double>(weight_decay)), *c.finite != 0};
  }

  static __device__ __forceinline__ void step(const Factors& f, float (&x)[2], float gradient) {
    auto& [p, m] = x;
    m = fmaf(f.momentum, m, gradient * f.clip);
    p = fmaf(-f.lr, m, p * f.decay);
  }
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_sgd_cuda(const ir::KernelSpec& spec) {
  return std::make_shared<cuda::Update<Sgd>>(spec);
}

}  // namespace trireme::ops
