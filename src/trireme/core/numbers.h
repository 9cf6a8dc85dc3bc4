#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace trireme {

// The divisor of n that lies nearest to `wanted`; the smaller of two that are equally near.
inline std::int64_t nearest_divisor(std::int64_t n, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0 && std::abs(d - wanted) < std::abs(best - wanted)) best = d;
  return best;
}

// The same number. What is no number loses its sign, which says nothing and differs between machines: "nan" is printed
// of all, and never "-nan".
template <class T>
T without_nan_sign(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

}  // namespace trireme
