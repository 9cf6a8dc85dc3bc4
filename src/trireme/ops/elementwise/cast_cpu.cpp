#include <type_traits>

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {
namespace {

template <class T>
constexpr bool kCompute = std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class T>
constexpr bool kHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class To, class From>
To convert(From value) {
  if constexpr (kHalf<From>)
    return convert<To>(static_cast<float>(value));
  else if constexpr (kHalf<To>)
    return To(static_cast<float>(value));
  else
    return static_cast<To>(value);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_cast_cpu(const ir::KernelSpec& spec) {
  return dispatch(spec.inputs[0].dtype, [&]<class From>(From) {
    return dispatch(spec.outputs[0].dtype, [&]<class To>(To) {
      return make_kernel([n = spec.outputs[0].elements()](const device::Launch& launch) {
        launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
          const From* x = launch.in<From>(0);
          To* y = launch.out<To>(0);
          if constexpr (kCompute<From> && kCompute<To>)
            simd::map(
                end - begin, y + begin, [](simd::Vec v) { return v; }, x + begin);
          else
            for (std::int64_t i = begin; i < end; ++i) y[i] = convert<To>(x[i]);
        });
      });
    });
  });
}

}  // namespace trireme::ops
