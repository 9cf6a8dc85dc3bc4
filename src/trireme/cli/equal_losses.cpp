#include "trireme/cli/equal_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::cli {

double largest_difference(std::span<const double> a, std::span<const double> b) {
  const std::size_t count = std::min(a.size(), b.size());
  double most = count == 0 ? std::numeric_limits<double>::quiet_NaN() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;  // no comparison with it is ever true
    most = std::max(most, difference);
  }
  return most;
}

std::string equal_text(double difference, double close) {
  if (std::isnan(difference)) return "the losses cannot be compared ✗";
  return fmt::format("losses differ by at most {:.0e} {}", difference, difference <= close ? "✓" : "✗");
}

}  // namespace trireme::cli
