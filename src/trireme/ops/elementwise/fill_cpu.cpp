#include <algorithm>

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_fill_cpu(const ir::KernelSpec& spec) {
  const double value = spec.attributes.real("value");
  return dispatch(spec.outputs[0].dtype, [&]<class T>(T) {
    T element;
    if constexpr (std::is_class_v<T>)
      element = T(static_cast<float>(value));
    else
      element = static_cast<T>(value);
    return make_kernel([n = spec.outputs[0].elements(), element](const device::Launch& launch) {
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        std::fill(launch.out<T>(0) + begin, launch.out<T>(0) + end, element);
      });
    });
  });
}

}  // namespace trireme::ops
