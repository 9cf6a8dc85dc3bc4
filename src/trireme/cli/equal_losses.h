#pragma once
#include <span>
#include <string>

namespace trireme::cli {

// The largest difference between two lists of losses, as far as both go; not a number where one of them is none, or
// where there is nothing to compare.
double largest_difference(std::span<const double> a, std::span<const double> b);

// What a comparison of losses says, and in which words.
struct Verdict {
  enum class Kind {
    equal,    // at most as far apart as the same sums in another order are
    unequal,  // further apart, or not numbers
    open,     // a rounding error alone makes the plain losses so different that nothing can be said
  };
  Kind kind = Kind::open;
  std::string text;  // "losses differ by at most 5e-07 ✓"
};

// Compares the losses of several ranks with those of `one`, step by step: they may be `close` apart.
//
// `own` says how far apart the one rank's own losses are when it rounds otherwise: when every weight starts one
// rounding error away, or the rows of a micro-batch come in another order. That is its conditioning, measured. A step
// may differ by kMargin times that, since these are a few of the ways in which ranks round; one that may differ by more
// than kTells of its loss says nothing. {}: not measured.
Verdict judge(std::span<const double> one, std::span<const double> several, double close,
              std::span<const double> own = {});

constexpr double kMargin = 10;
constexpr double kTells = 0.1;

}  // namespace trireme::cli
