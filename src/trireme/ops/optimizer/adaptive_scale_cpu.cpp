#include <algorithm>

#include "trireme/ops/define.h"
#include "trireme/ops/optimizer/cpu_kernels.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_adaptive_scale_cpu(const ir::KernelSpec& spec) {
  const auto window = static_cast<float>(spec.attributes.integer("window"));
  const auto low = static_cast<float>(spec.attributes.real("low"));
  const auto high = static_cast<float>(spec.attributes.real("high"));
  return make_kernel([=](const device::Launch& launch) {
    const float scale = *launch.in<float>(0);
    const float good = *launch.in<float>(1);
    const float bad = *launch.in<float>(2);
    const bool finite = *launch.in<float>(3) != 0;
    const bool grow = finite && good + 1 >= window;
    *launch.out<float>(0) = !finite ? std::max(low, scale / 2) : grow ? std::min(high, scale * 2) : scale;
    *launch.out<float>(1) = !finite || grow ? 0.0F : good + 1;
    *launch.out<float>(2) = finite ? bad : bad + 1;
  });
}

}  // namespace trireme::ops
