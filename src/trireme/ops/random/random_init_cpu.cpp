#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "trireme/ops/define.h"
#include "trireme/ops/random/cpu_kernels.h"
#include "trireme/ops/random/random_init.h"
#include "trireme/ops/random/window.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_random_init_cpu(const ir::KernelSpec& spec) {
  const std::string kind = spec.attributes.text("kind");
  const double a = spec.attributes.real("a");
  const auto site = static_cast<std::uint64_t>(spec.attributes.integer("site"));
  const RandomWindow window(spec.attributes);
  if (!is_float(spec.outputs[0].dtype))  // zeros, whatever the window
    return make_kernel([bytes = spec.outputs[0].bytes()](const device::Launch& launch) {
      std::memset(launch.out<std::byte>(0), 0, bytes);
    });
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=, n = spec.outputs[0].elements()](const device::Launch& launch) {
      constexpr std::int64_t kSpan = 1024;
      const auto seed = static_cast<std::uint64_t>(*launch.in<std::int64_t>(0));
      std::array<std::int64_t, RandomWindow::kMaxShifts> places{};
      for (int p = 0; p < window.shifts(); ++p)
        places[static_cast<std::size_t>(p)] = *launch.in<std::int64_t>(1 + static_cast<std::size_t>(p));
      launch.pool->ranges(n, kSpan, [&](std::int64_t begin, std::int64_t end) {
        float values[kSpan];
        window.each_run(begin, end - begin, places, [&](std::int64_t at, std::int64_t count, std::int64_t element) {
          const std::span<float> run(values + at, static_cast<std::size_t>(count));
          if (element < 0)
            std::fill(run.begin(), run.end(), 0.0F);
          else
            random_elements(kind, a, seed, site, element, run);
        });
        simd::map(
            end - begin, launch.out<T>(0) + begin, [](simd::Vec v) { return v; }, static_cast<const float*>(values));
      });
    });
  });
}

}  // namespace trireme::ops
