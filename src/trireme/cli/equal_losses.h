#pragma once
#include <span>
#include <string>

namespace trireme::cli {

// The largest difference between two lists of losses, as far as both go; not a number where one of them is none, or
// where there is nothing to compare.
double largest_difference(std::span<const double> a, std::span<const double> b);

// "losses differ by at most 5e-07 ✓": a tick where they are at most `close` apart, as the same sums in another order
// are.
std::string equal_text(double difference, double close);

}  // namespace trireme::cli
