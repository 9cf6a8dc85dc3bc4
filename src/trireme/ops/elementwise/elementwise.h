#pragma once
#include <string>
#include <vector>

#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

// What the elementwise ops share.
namespace trireme::ops {

// A definition whose operands and outputs all have the first operand's type, computed element by element in one pass;
// every output may overwrite any operand. The kernel and the gradient are the caller's to add.
ir::OpDef elementwise_def(std::string name, std::vector<std::string> operands, int outputs, double flops,
                          std::vector<ir::AttributeSpec> attributes = {});

// y[i] = f(x0[i], x1[i], …) with operands of one dtype; `f` works on f32 vectors.
template <int Operands, class F>
std::shared_ptr<device::Kernel> map_kernel(const ir::KernelSpec& spec, F f) {
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([n = spec.outputs[0].elements(), f](const device::Launch& launch) {
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
          simd::map(end - begin, launch.out<T>(0) + begin, f, launch.in<T>(I) + begin...);
        }
        (std::make_index_sequence<Operands>());
      });
    });
  });
}

// y[i] = f(a[i], b[i mod |b|]): b has a's shape, a suffix of it, or one element.
template <class F>
std::shared_ptr<device::Kernel> broadcast_kernel(const ir::KernelSpec& spec, F f) {
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_compute(spec.inputs[1].dtype, [&]<class U>(U) {
      const std::int64_t n = spec.inputs[0].elements();
      const std::int64_t period = spec.inputs[1].elements();
      return make_kernel([n, period, f](const device::Launch& launch) {
        const T* a = launch.in<T>(0);
        const U* b = launch.in<U>(1);
        T* y = launch.out<T>(0);
        launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
          if (period == 1) {
            const simd::Vec scalar = simd::set(static_cast<float>(*b));
            simd::map(
                end - begin, y + begin, [&](simd::Vec x) { return f(x, scalar); }, a + begin);
            return;
          }
          for (std::int64_t i = begin; i < end;) {
            const std::int64_t offset = i % period;
            const std::int64_t count = std::min(period - offset, end - i);
            simd::map(count, y + i, f, a + i, b + offset);
            i += count;
          }
        });
      });
    });
  });
}

// Throws unless b has a's shape, a suffix of it, or is a scalar.
void expect_broadcast(const TensorType& a, const TensorType& b);

// The gradient of an operand that was broadcast to `gradient`'s shape: summed over the added leading dimensions, in the
// operand's dtype.
ir::Value sum_to(ir::Value gradient, const TensorType& operand);

}  // namespace trireme::ops
