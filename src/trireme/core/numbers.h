#pragma once
#include <cstdint>
#include <cstdlib>

namespace trireme {

// The divisor of n that lies nearest to `wanted`; the smaller of two that are equally near.
inline std::int64_t nearest_divisor(std::int64_t n, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0 && std::abs(d - wanted) < std::abs(best - wanted)) best = d;
  return best;
}

}  // namespace trireme
