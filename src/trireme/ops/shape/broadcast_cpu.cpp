#include <algorithm>

#include "trireme/ops/define.h"
#include "trireme/ops/shape/cpu_kernels.h"
#include "trireme/ops/shape/dim_groups.h"

namespace trireme::ops {
namespace {

template <class T>
std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec) {
  const DimGroups groups(spec.outputs[0].shape, spec.attributes.integers("dims"));
  const std::int64_t elements = spec.outputs[0].elements();
  const std::int64_t x_inner = groups.inner_marked ? 1 : groups.inner;
  return make_kernel([groups, elements, x_inner](const device::Launch& launch) {
    constexpr std::int64_t kBlock = 16384;
    launch.pool->ranges(elements, kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end;) {
        const std::int64_t within = at % groups.inner;
        const std::int64_t count = std::min(groups.inner - within, end - at);
        std::int64_t source = 0;
        std::int64_t stride = x_inner;
        for (std::size_t i = groups.plain.size(); i-- > 0;) {
          source += at / groups.plain[i].stride % groups.plain[i].extent * stride;
          stride *= groups.plain[i].extent;
        }
        T* y = launch.out<T>(0) + at;
        if (groups.inner_marked)
          std::fill(y, y + count, launch.in<T>(0)[source]);
        else
          std::copy_n(launch.in<T>(0) + source + within, count, y);
        at += count;
      }
    });
  });
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_broadcast_cpu(const ir::KernelSpec& spec) {
  switch (size_of(spec.outputs[0].dtype)) {
    case 1: return prepare<std::uint8_t>(spec);
    case 2: return prepare<std::uint16_t>(spec);
    case 4: return prepare<std::uint32_t>(spec);
    default: return prepare<std::uint64_t>(spec);
  }
}

}  // namespace trireme::ops
