#include "trireme/planner/stage_cut.h"

#include <algorithm>
#include <limits>

namespace trireme::planner {

std::vector<std::int64_t> balanced_parts(const std::vector<double>& seconds, int parts, const FitsPart& fits) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t count = seconds.size();
  const auto all = static_cast<std::size_t>(parts);
  if (parts < 1 || all > count) return {};
  std::vector<double> before(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) before[i + 1] = before[i] + seconds[i];
  // Of the first i in k parts: the largest of these, and where the last of them begins.
  std::vector<std::vector<double>> largest(all + 1, std::vector<double>(count + 1, kNever));
  std::vector<std::vector<std::size_t>> from(all + 1, std::vector<std::size_t>(count + 1, 0));
  largest[0][0] = 0;
  for (std::size_t k = 1; k <= all; ++k)
    for (std::size_t i = k; i <= count; ++i)
      for (std::size_t j = k - 1; j < i; ++j) {
        const double here = std::max(largest[k - 1][j], before[i] - before[j]);
        if (here < largest[k][i] && (!fits || fits(k - 1, j, i))) {
          largest[k][i] = here;
          from[k][i] = j;
        }
      }
  if (largest[all][count] == kNever) return {};
  std::vector<std::int64_t> pieces(all);
  for (std::size_t k = all, end = count; k > 0; end = from[k][end], --k)
    pieces[k - 1] = static_cast<std::int64_t>(end - from[k][end]);
  return pieces;
}

}  // namespace trireme::planner
