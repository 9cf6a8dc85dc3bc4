#include <algorithm>

#include "trireme/ops/define.h"
#include "trireme/ops/random/cpu_kernels.h"
#include "trireme/ops/random/random_init.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_random_init_cpu(const ir::KernelSpec& spec) {
  const std::string kind = spec.attributes.text("kind");
  const double a = spec.attributes.real("a");
  const auto site = static_cast<std::uint64_t>(spec.attributes.integer("site"));
  const std::int64_t first = spec.attributes.integer("first");
  const bool cut = spec.inputs[1].present;
  const std::int64_t parted = spec.attributes.integer("parted");
  const std::int64_t whole = spec.attributes.integer("whole");
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=, n = spec.outputs[0].elements()](const device::Launch& launch) {
      constexpr std::int64_t kSpan = 1024;
      const auto seed = static_cast<std::uint64_t>(*launch.in<std::int64_t>(0));
      launch.pool->ranges(n, kSpan, [&](std::int64_t begin, std::int64_t end) {
        float values[kSpan];
        const std::int64_t from = first + begin + (cut ? *launch.in<std::int64_t>(1) * parted : 0);
        const std::int64_t there = cut ? std::clamp<std::int64_t>(whole - from, 0, end - begin) : end - begin;
        random_elements(kind, a, seed, site, from, {values, static_cast<std::size_t>(there)});
        std::fill(values + there, values + (end - begin), 0.0F);
        simd::map(
            end - begin, launch.out<T>(0) + begin, [](simd::Vec v) { return v; }, static_cast<const float*>(values));
      });
    });
  });
}

}  // namespace trireme::ops
