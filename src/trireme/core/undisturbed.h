#pragma once
#include <algorithm>
#include <vector>

namespace trireme {

// What something takes when nothing else happens, from repeated measurements of it: their lower quartile. Other work on
// a machine makes a measurement longer and hardly ever shorter, so that the median of a few is often a disturbed one,
// and the least is sometimes a lucky one. Empty: 0.
template <class T>
T undisturbed(std::vector<T> measured) {
  if (measured.empty()) return 0;
  const auto quartile = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 4);
  std::nth_element(measured.begin(), quartile, measured.end());
  return *quartile;
}

}  // namespace trireme
