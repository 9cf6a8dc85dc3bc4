#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

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

// A way in which one rank rounds otherwise than it does by itself.
struct Probe {
  enum class Kind { none, weights, rows };
  Kind kind = Kind::none;
  std::uint64_t draw = 0;
};

// The same, measuring `own` by `losses_of` probes of these kinds: by step the most of a few of them, as one may happen
// to change little. Runs that have parted stay so, even where their losses cross, so that no step may differ by less
// than one before it. Nothing is called unequal before more probes than usual have failed to explain it.
Verdict judge_by_probes(std::span<const double> one, std::span<const double> several, double close,
                        std::span<const Probe::Kind> kinds,
                        const std::function<std::vector<double>(const Probe&)>& losses_of);
constexpr std::uint64_t kUsualProbes = 3, kMaxProbes = 8;  // of each kind

constexpr double kMargin = 10;
constexpr double kTells = 0.1;

}  // namespace trireme::cli
