#pragma once
#include <cmath>

namespace trireme::testing {

// The larger of two errors. One that is no number is larger than any other, and stays: std::max would drop it.
inline double larger(double a, double b) { return std::isnan(a) || !(std::isnan(b) || b > a) ? a : b; }

}  // namespace trireme::testing
