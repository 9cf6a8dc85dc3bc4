#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_add_cpu(const ir::KernelSpec& spec) {
  return broadcast_kernel(spec, [](simd::Vec a, simd::Vec b) { return a + b; });
}

std::shared_ptr<device::Kernel> prepare_accumulate_cpu(const ir::KernelSpec& spec) { return prepare_add_cpu(spec); }

std::shared_ptr<device::Kernel> prepare_add_n_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([n = spec.outputs[0].elements()](const device::Launch& launch) {
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        T* y = launch.out<T>(0) + begin;
        simd::for_vectors(end - begin, [&](std::int64_t i, std::int64_t count) {
          simd::Vec total = simd::load_n(launch.in<T>(0) + begin + i, count);
          for (std::size_t k = 1; k < launch.inputs.size(); ++k)
            total = total + simd::load_n(launch.in<T>(k) + begin + i, count);
          simd::store_n(total, y + i, count);
        });
      });
    });
  });
}

}  // namespace trireme::ops
