#pragma once
#include <cstddef>
#include <string>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// Rewrites a graph that makes new state (update, init, derive) so that what involves states of other tiers is done in
// pieces, cut along the first dimension, one loaded and stored while the next is computed:
//
//   %p = adamw(@w, @w/grad, …)          →    for each piece [a, b):   %w = load(rows(@w, a, b)) …
//   write set @w = %p                                                 %p = adamw(%w, …)
//                                                                     %s = store(%p)
//                                            write set @w = assemble(%s …)
//
// Elementwise ops, start values and sums of squares are cut; whatever else reads such a state loads all of it. Every
// element is computed as before, and sums of squares add up in the same order, so results have the same bits.
struct PieceOptions {
  int tier = 2;
  std::size_t bytes = std::size_t{4} << 20;  // of a piece in f32; of small tensors a quarter, of huge ones more
};
void cut_in_pieces(ir::Module& module, const std::string& graph, const PieceOptions& options);

// How many rows of a tensor make a piece: whole pages and whole chunks of sum_squares, and at most all rows.
std::int64_t piece_rows(const Shape& shape, std::size_t bytes);

}  // namespace trireme::passes
