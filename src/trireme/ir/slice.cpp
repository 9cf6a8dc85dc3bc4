#include "trireme/ir/slice.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

// Which of the shards along one dimension belongs to the coordinate.
std::int64_t shard_index(const std::vector<std::string>& axes, const Mesh& mesh, std::span<const int> coordinate) {
  std::int64_t number = 0;
  for (const std::string& axis : axes) {
    const std::size_t a = mesh.index_of(axis);
    number = number * mesh.axes[a].size + coordinate[a];
  }
  return number;
}

}  // namespace

Shape sliced_shape(const State& state) {
  const Shape& whole = state.global_shape();
  return whole.rank() == state.type.shape.rank() ? whole : whole.as_rows();
}

Slice slice_of(const State& state, const Mesh& mesh, std::span<const int> coordinate) {
  TRI_CHECK(coordinate.size() == mesh.axes.size(), "a coordinate of {} numbers on the mesh '{}'", coordinate.size(),
            mesh.str());
  const Shape whole = sliced_shape(state);
  Slice slice{whole, state.type.shape};
  for (int d = 0; d < whole.rank(); ++d) {
    const std::int64_t shard = static_cast<std::size_t>(d) < state.sharding.dims.size()
                                   ? shard_index(state.sharding.dims[static_cast<std::size_t>(d)], mesh, coordinate)
                                   : 0;
    const std::int64_t first = (d == 0 ? state.first_row : 0) + shard * state.type.shape[d];
    slice.start[d] = std::min(first, whole[d]);
    slice.extent[d] = std::min(state.type.shape[d], whole[d] - slice.start[d]);
  }
  return slice;
}

Slice in_rows(const Slice& slice, const Shape& whole) {
  if (slice.extent.rank() == whole.as_rows().rank()) return slice;
  // Rows of all but the last dimension are consecutive where every dimension behind the first is whole.
  std::int64_t inner = 1;
  for (int d = 1; d + 1 < whole.rank(); ++d) {
    if (slice.extent[d] != whole[d])
      fail("a block of {} of {} is not a block of its rows", slice.extent.str(), whole.str());
    inner *= whole[d];
  }
  const int last = whole.rank() - 1;
  return {{slice.start[0] * inner, slice.start[last]}, {slice.extent[0] * inner, slice.extent[last]}};
}

Slice all_of(const Shape& whole) {
  Slice slice{whole, whole};
  for (int d = 0; d < whole.rank(); ++d) slice.start[d] = 0;
  return slice;
}

}  // namespace trireme::ir
