#pragma once
#include <span>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::ir {

// A block of a tensor: from `start`, `extent` elements along each dimension.
struct Slice {
  Shape start;
  Shape extent;

  bool empty() const { return extent.elements() == 0; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// Elements [first, last) of a dimension.
struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;

  std::int64_t size() const { return last - first; }
  bool empty() const { return last <= first; }
  friend bool operator==(const Range&, const Range&) = default;
};
// What both have; empty: nothing.
Range overlap(const Range& a, const Range& b);

// What the rank at `place` of `parts` has of a height or a width. The extents are true: nothing is padded, and they
// differ by one at most.
//
//   7 rows over 3 ranks: 0–1, 2–3, 4–6
Range spatial_shard(std::int64_t extent, std::int64_t parts, std::int64_t place);

// What the rank at `coordinate` has of a tensor that is spread so: spatial axes shard in true extents, others in equal
// parts. Nothing is padded: throws where the parts would not be equal.
//
//   [6,13,13,3] as [dp,h,_,_], dp=2,h=2:    dp=1,h=0 → from [3,0,0,0], [3,6,13,3]
Slice slice_of(const Shape& whole, const Sharding& sharding, const Mesh& mesh, std::span<const int> coordinate);

// Some of the rows (Shape::as_rows) of a state's global tensor, and the row of a rank's storage at which they begin.
struct StoredRows {
  Slice rows;
  std::int64_t first = 0;
  friend bool operator==(const StoredRows&, const StoredRows&) = default;
};

// What the rank at `coordinate` (its position along each axis of `mesh`) stores of a state, in the order in which it
// stores it. A rank has a block of the tensor, whose dimensions are sharded over mesh axes, or some of the rows of that
// block (State::block). A dimension sharded over several axes counts through them with the outermost first. Shards are
// of equal size and the last ones may reach beyond the state's end: what is beyond is padding and not among the rows.
//
//   @w : f32[4,8] whole=[10,8] sharding=[dp,_], mesh dp=3:    dp=0 → rows 0–3, dp=1 → rows 4–7, dp=2 → rows 8–9
//   @w : f32[2,4,8] whole=[2,8,8] sharding=[_,tp,_], tp=2:    tp=1 → rows 4–7, and rows 12–15 from its row 4 on
std::vector<StoredRows> stored_rows(const State& state, const Mesh& mesh, std::span<const int> coordinate);

// Elements from one row of a rank's storage to the next.
std::int64_t row_pitch(const State& state);

// The place of a rank among those that shard something over `axes`, outermost first.
std::int64_t shard_index(std::span<const std::string> axes, const Mesh& mesh, std::span<const int> coordinate);

// The same block, of the tensor's rows (Shape::as_rows). Throws where it is none: some of an inner dimension.
Slice in_rows(const Slice& slice, const Shape& whole);

Slice all_of(const Shape& whole);

}  // namespace trireme::ir
