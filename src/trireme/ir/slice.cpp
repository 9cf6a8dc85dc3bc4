#include "trireme/ir/slice.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"

namespace trireme::ir {
namespace {

// The block that a rank has of a state's tensor, of which it stores all rows or some.
struct Block {
  Shape shape;  // with padding
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> extent;  // without
};

Block block_of(const State& state, const Mesh& mesh, std::span<const int> coordinate) {
  const Shape& whole = state.global_shape();
  Block block{state.block.rank() > 0 ? state.block : state.type.shape, {}, {}};
  for (int d = 0; d < whole.rank(); ++d) {
    const std::int64_t shard =
        index(d) < state.sharding.dims.size() ? shard_index(state.sharding.dims[index(d)], mesh, coordinate) : 0;
    const std::int64_t first = std::min(shard * block.shape[d], whole[d]);
    block.start.push_back(first);
    block.extent.push_back(std::min(block.shape[d], whole[d] - first));
  }
  return block;
}

}  // namespace

Range overlap(const Range& a, const Range& b) {
  const Range both{std::max(a.first, b.first), std::min(a.last, b.last)};
  return both.empty() ? Range{both.first, both.first} : both;
}

Range spatial_shard(std::int64_t extent, std::int64_t parts, std::int64_t place) {
  return {place * extent / parts, (place + 1) * extent / parts};
}

std::int64_t shard_index(std::span<const std::string> axes, const Mesh& mesh, std::span<const int> coordinate) {
  std::int64_t number = 0;
  for (const std::string& axis : axes) {
    const std::size_t a = mesh.index_of(axis);
    number = number * mesh.axes[a].size + coordinate[a];
  }
  return number;
}

Slice slice_of(const Shape& whole, const Sharding& sharding, const Mesh& mesh, std::span<const int> coordinate) {
  Slice slice = all_of(whole);
  for (int d = 0; d < whole.rank() && index(d) < sharding.dims.size(); ++d) {
    const std::vector<std::string>& axes = sharding.dims[index(d)];
    std::int64_t parts = 1;
    for (const std::string& axis : axes) parts *= mesh.size_of(axis);
    if (parts == 1) continue;
    const bool spatial =
        std::any_of(axes.begin(), axes.end(), [](const std::string& axis) { return is_spatial(axis); });
    if (!spatial && whole[d] % parts != 0) fail("{} is not in {} equal parts along {}", whole.str(), parts, d);
    const Range own = spatial_shard(whole[d], parts, shard_index(axes, mesh, coordinate));
    slice.start[d] = own.first;
    slice.extent[d] = own.size();
  }
  return slice;
}

std::int64_t row_pitch(const State& state) { return state.type.shape.rank() < 2 ? 1 : state.type.shape.back(); }

std::vector<StoredRows> stored_rows(const State& state, const Mesh& mesh, std::span<const int> coordinate) {
  TRI_CHECK(coordinate.size() == mesh.axes.size(), "a coordinate of {} numbers on the mesh '{}'", coordinate.size(),
            mesh.str());
  const Shape& whole = state.global_shape();
  if (whole.rank() == 0) return {{all_of(whole), 0}};
  const Block block = block_of(state, mesh, coordinate);
  const int rank = whole.rank();
  const bool columns = rank > 1;  // the last dimension is inside a row
  const int outer = columns ? rank - 1 : 1;
  const std::int64_t column = columns ? block.start.back() : 0;
  const std::int64_t width = columns ? block.extent.back() : 1;

  // Rows of dimensions that a rank has whole follow one another, with those of the dimension before them.
  int last = outer - 1;
  std::int64_t inner = 1;
  while (last > 0 && block.shape[last] == whole[last]) inner *= whole[last--];
  const std::int64_t run = block.shape[last] * inner;            // rows of the block in one run, padding included,
  const std::int64_t there = block.extent[index(last)] * inner;  // and those that exist

  const std::int64_t block_rows = block.shape.elements(0, outer);
  const bool some = state.block.rank() > 0;
  const std::int64_t stored = some ? state.type.shape.as_rows()[0] : block_rows;
  const std::int64_t from =
      std::min(block_rows, some ? state.first_row + shard_index(state.row_axes, mesh, coordinate) * stored : 0);
  const std::int64_t to = std::min(from + stored, block_rows);

  std::vector<StoredRows> result;
  for (std::int64_t unit = from / std::max<std::int64_t>(run, 1); width > 0 && unit * run < to; ++unit) {
    // The global row at which the run begins.
    std::int64_t row = 0;
    bool exists = true;
    std::int64_t below = unit;
    std::int64_t stride = whole.elements(last, outer);
    for (int d = last - 1; d >= 0; --d) {
      const std::int64_t i = below % block.shape[d];
      below /= block.shape[d];
      exists = exists && i < block.extent[index(d)];
      row += (block.start[index(d)] + i) * stride;
      stride *= whole[d];
    }
    row += block.start[index(last)] * inner;
    const std::int64_t begin = std::max(from, unit * run);
    const std::int64_t end = std::min(to, unit * run + there);
    if (!exists || begin >= end) continue;
    row += begin - unit * run;
    if (!result.empty()) {
      StoredRows& before = result.back();
      if (before.rows.start[0] + before.rows.extent[0] == row && before.first + before.rows.extent[0] == begin - from) {
        before.rows.extent[0] += end - begin;
        continue;
      }
    }
    const Slice rows = columns ? Slice{{row, column}, {end - begin, width}} : Slice{{row}, {end - begin}};
    result.push_back({rows, begin - from});
  }
  return result;
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
