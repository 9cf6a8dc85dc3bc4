#pragma once
#include <span>

#include "trireme/ir/graph.h"

namespace trireme::ir {

// A block of a tensor: from `start`, `extent` elements along each dimension.
struct Slice {
  Shape start;
  Shape extent;

  bool empty() const { return extent.elements() == 0; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// The shape whose blocks ranks store of a state: its global shape or, where ranks store rows of a tensor of more than
// two dimensions, that shape as rows (Shape::as_rows).
Shape sliced_shape(const State& state);

// What the rank at `coordinate` (its position along each axis of `mesh`) stores of a state, as a block of sliced_shape.
// A dimension sharded over several axes counts through them with the outermost first. Shards are of equal size and the
// last ones may reach beyond the state's end: the slice ends where the state does, and may be empty.
//
//   @w : f32[4,8] whole=[10,8] sharding=[dp], mesh dp=3:    dp=0 → rows 0–3, dp=1 → rows 4–7, dp=2 → rows 8–9
Slice slice_of(const State& state, const Mesh& mesh, std::span<const int> coordinate);

// The same block, of the tensor's rows (Shape::as_rows). Throws where it is none: some of an inner dimension.
Slice in_rows(const Slice& slice, const Shape& whole);

Slice all_of(const Shape& whole);

}  // namespace trireme::ir
