#include <cstring>

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_select_cpu(const ir::KernelSpec& spec) {
  return make_kernel([bytes = static_cast<std::int64_t>(spec.outputs[0].bytes())](const device::Launch& launch) {
    const auto* chosen = launch.in<std::byte>(*launch.in<float>(0) != 0 ? 1 : 2);
    auto* y = launch.out<std::byte>(0);
    if (chosen == y) return;
    launch.pool->ranges(bytes, std::int64_t{1} << 16, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(y + begin, chosen + begin, static_cast<std::size_t>(end - begin));
    });
  });
}

}  // namespace trireme::ops
