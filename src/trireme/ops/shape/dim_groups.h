#pragma once
#include <cstdint>
#include <vector>

#include "trireme/core/shape.h"

namespace trireme::ops {

// A shape whose dimensions are of two kinds, marked and not, in its simplest form: extents of 1 dropped, neighbours of
// one kind joined. The last group is `inner`; the others, with their strides, are `plain` and `marked`.
//
//   DimGroups({8, 4, 3, 64}, {1, 2}): plain {8}, marked {12}, inner 64 plain
struct DimGroups {
  struct Group {
    std::int64_t extent;
    std::int64_t stride;  // in elements of the full shape
  };
  std::vector<Group> plain;
  std::vector<Group> marked;
  std::int64_t inner = 1;
  bool inner_marked = false;

  DimGroups(const Shape& shape, const std::vector<std::int64_t>& marked_dims);

  static std::int64_t count(const std::vector<Group>& groups);
  // Where the index'th combination of the groups starts.
  static std::int64_t offset(const std::vector<Group>& groups, std::int64_t index);
};

// The dimensions of `shape` that `dims` does not name. Throws when `dims` names one twice or one that is not there.
Shape without_dims(const Shape& shape, const std::vector<std::int64_t>& dims);

}  // namespace trireme::ops
