#include "trireme/cli/equal_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/core/numbers.h"

namespace trireme::cli {
namespace {

// What is no number stays.
double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

}  // namespace

double largest_difference(std::span<const double> a, std::span<const double> b) {
  const std::size_t count = std::min(a.size(), b.size());
  double most = count == 0 ? std::numeric_limits<double>::quiet_NaN() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return without_nan_sign(difference);  // no comparison with it is ever true
    most = std::max(most, difference);
  }
  return most;
}

Verdict judge(std::span<const double> one, std::span<const double> several, double close, std::span<const double> own) {
  using Kind = Verdict::Kind;
  const double most = largest_difference(one, several);
  if (!std::isfinite(most)) return {Kind::unequal, "the losses cannot be compared ✗"};
  const std::string differ = fmt::format("losses differ by at most {:.0e}", most);
  if (most <= close) return {Kind::equal, differ + " ✓"};
  if (own.empty()) return {Kind::unequal, differ + " ✗"};
  const std::size_t count = std::min({one.size(), several.size(), own.size()});
  std::size_t telling = 0;
  double largest_own = 0;
  for (std::size_t i = 0; i < count; ++i) {
    // What is no number tells nothing.
    if (!(kMargin * own[i] <= std::max(close, kTells * std::abs(one[i])))) continue;
    ++telling;
    largest_own = std::max(largest_own, own[i]);
    const double difference = std::abs(one[i] - several[i]);
    if (!(difference <= std::max(close, kMargin * own[i])))
      return {Kind::unequal, fmt::format("the losses of step {} differ by {:.0e}, and one rank's own by {:.0e} through "
                                         "rounding alone ✗",
                                         i + 1, difference, own[i])};
  }
  const std::string conditioned = differ + ", and rounding alone makes one rank's own differ by ";
  if (telling == 0)
    return {Kind::open, fmt::format("{}{:.0e} or more: no verdict", conditioned,
                                    *std::min_element(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count)))};
  return {Kind::equal, fmt::format("{}{:.0e} ✓{}", conditioned, largest_own,
                                   telling == count ? ""
                                                    : fmt::format(" ({} of {} steps; the others differ too much "
                                                                  "on one rank alone to tell)",
                                                                  telling, count))};
}

Verdict judge_by_probes(std::span<const double> one, std::span<const double> several, double close,
                        std::span<const Probe::Kind> kinds,
                        const std::function<std::vector<double>(const Probe&)>& losses_of) {
  std::vector<double> own(one.size(), 0);
  Verdict verdict;
  for (std::uint64_t draw = 1; draw <= kMaxProbes; ++draw) {
    for (const Probe::Kind kind : kinds) {
      const std::vector<double> other = losses_of({kind, draw});
      double most = 0;  // so far
      for (std::size_t i = 0; i < own.size(); ++i) {
        most = larger(most, std::abs(other[i] - one[i]));
        own[i] = larger(own[i], most);
      }
    }
    if (draw < kUsualProbes) continue;
    verdict = judge(one, several, close, own);
    if (verdict.kind != Verdict::Kind::unequal) break;
  }
  return verdict;
}

}  // namespace trireme::cli
