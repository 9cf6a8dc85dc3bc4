#include "support/op_check.h"

#include <cmath>

#include "trireme/core/dtype.h"

namespace trireme::testing {

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

double round_to(double value, DType dtype) {
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(static_cast<T>(value));
    else
      return static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
  });
}

}  // namespace trireme::testing
