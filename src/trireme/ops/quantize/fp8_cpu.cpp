#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/ops/define.h"
#include "trireme/ops/quantize/fp8.h"
#include "trireme/ops/simd.h"

// What a GPU computes, to the bit; not fast.
namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_fp8_scale_cpu(const ir::KernelSpec& spec) {
  const std::int64_t n = spec.inputs[0].elements();
  const float most = fp8_format(spec.attributes.text("format")).most;
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([n, most](const device::Launch& launch) {
      const T* x = launch.in<T>(0);
      float largest = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const float a = std::abs(static_cast<float>(x[i]));
        if (!(a <= largest)) largest = a;  // a NaN too, which stays
        if (std::isnan(largest)) break;
      }
      *launch.out<float>(0) = (largest < kSmallestFp8 ? kSmallestFp8 : largest) / most;
    });
  });
}

std::shared_ptr<device::Kernel> prepare_quantize_fp8_cpu(const ir::KernelSpec& spec) {
  const Fp8Matrix m(spec.inputs[0], spec.attributes);
  const Fp8Format format = fp8_format(spec.attributes.text("format"));
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([m, format](const device::Launch& launch) {
      const T* x = launch.in<T>(0);
      const float inverse = 1.0F / *launch.in<float>(1);
      auto* const as_rows = m.as_rows ? launch.out<std::uint8_t>(0) : nullptr;
      auto* const as_columns = m.as_columns ? launch.out<std::uint8_t>(m.as_rows ? 1 : 0) : nullptr;
      launch.pool->ranges(m.rows, std::max<std::int64_t>(1, simd::kBlock / std::max<std::int64_t>(1, m.columns)),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t i = begin; i < end; ++i)
                              for (std::int64_t j = 0; j < m.columns; ++j) {
                                const std::uint8_t code =
                                    format.encode(static_cast<float>(x[i * m.columns + j]) * inverse);
                                if (as_rows != nullptr) as_rows[i * m.columns + j] = code;
                                if (as_columns != nullptr) as_columns[j * m.rows + i] = code;
                              }
                          });
    });
  });
}

}  // namespace trireme::ops
