#include "trireme/planner/stage_cut.h"

#include <algorithm>
#include <limits>

namespace trireme::planner {

std::vector<std::int64_t> cut_layers(
    const std::vector<double>& seconds, int parts,
    const std::function<bool(std::size_t part, std::size_t first, std::size_t last)>& fits) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t count = seconds.size();
  const auto all = static_cast<std::size_t>(parts);
  if (parts < 1 || all > count) return {};
  std::vector<double> before(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) before[i + 1] = before[i] + seconds[i];
  // largest[k][i]: of the parts from k on, which have the layers from i on; and where part k ends then.
  std::vector<std::vector<double>> largest(all + 1, std::vector<double>(count + 1, kNever));
  std::vector<std::vector<std::size_t>> end(all, std::vector<std::size_t>(count + 1, 0));
  largest[all][count] = 0;
  for (std::size_t k = all; k-- > 0;)
    for (std::size_t i = k; i + (all - k) <= count; ++i) {
      // The later part k ends, the longer it is: from the longest on, so that equals leave the first parts long.
      for (std::size_t j = count - (all - k - 1); j > i; --j) {
        const double here = std::max(before[j] - before[i], largest[k + 1][j]);
        if (here < largest[k][i] && fits(k, i, j)) {
          largest[k][i] = here;
          end[k][i] = j;
        }
      }
    }
  if (largest[0][0] == kNever) return {};
  std::vector<std::int64_t> layers;
  for (std::size_t k = 0, at = 0; k < all; at = end[k][at], ++k)
    layers.push_back(static_cast<std::int64_t>(end[k][at] - at));
  return layers;
}

}  // namespace trireme::planner
