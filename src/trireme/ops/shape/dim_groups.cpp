#include "trireme/ops/shape/dim_groups.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::ops {

DimGroups::DimGroups(const Shape& shape, const std::vector<std::int64_t>& marked_dims) {
  struct Run {
    std::int64_t extent;
    bool marked;
  };
  std::vector<Run> runs;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const bool is_marked = std::find(marked_dims.begin(), marked_dims.end(), i) != marked_dims.end();
    if (!runs.empty() && runs.back().marked == is_marked)
      runs.back().extent *= shape[i];
    else
      runs.push_back({shape[i], is_marked});
  }
  if (runs.empty()) return;
  inner = runs.back().extent;
  inner_marked = runs.back().marked;
  runs.pop_back();
  std::int64_t stride = inner;
  for (std::size_t i = runs.size(); i-- > 0;) {
    auto& side = runs[i].marked ? marked : plain;
    side.insert(side.begin(), {runs[i].extent, stride});
    stride *= runs[i].extent;
  }
}

std::int64_t DimGroups::count(const std::vector<Group>& groups) {
  std::int64_t product = 1;
  for (const Group& group : groups) product *= group.extent;
  return product;
}

std::int64_t DimGroups::offset(const std::vector<Group>& groups, std::int64_t index) {
  std::int64_t start = 0;
  for (std::size_t i = groups.size(); i-- > 1;) {
    start += index % groups[i].extent * groups[i].stride;
    index /= groups[i].extent;
  }
  return groups.empty() ? 0 : start + index * groups[0].stride;
}

Shape without_dims(const Shape& shape, const std::vector<std::int64_t>& dims) {
  std::vector<bool> named(static_cast<std::size_t>(shape.rank()));
  for (const std::int64_t dim : dims) {
    if (dim < 0 || dim >= shape.rank() || named[static_cast<std::size_t>(dim)])
      fail("'dims' must be different dimensions of {}, got {}", shape.str(), Shape(dims).str());
    named[static_cast<std::size_t>(dim)] = true;
  }
  Shape rest;
  for (int i = 0; i < shape.rank(); ++i)
    if (!named[static_cast<std::size_t>(i)]) rest.push_back(shape[i]);
  return rest;
}

}  // namespace trireme::ops
