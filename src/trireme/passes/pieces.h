#pragma once
#include <cstddef>
#include <string>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// Rewrites a graph that makes new state (update, init, refresh) so that what involves states of other tiers is done in
// pieces, cut along the first dimension, one loaded and stored while the next is computed:
//
//   %p = adamw(@w, @w/grad, …)          →    for each piece [a, b):   %w = load(rows(@w, a, b)) …
//   write set @w = %p                                                 %p = adamw(%w, …)
//                                                                     %s = store(%p)
//                                            write set @w = assemble(%s …)
//
// Elementwise ops, start values and sums of squares are cut; whatever else reads such a state loads all of it, and what
// else makes one, as gathering the shards of all ranks does, stores all of it. Every element is computed as before, and
// sums of squares add up in the same order, so results have the same bits.
//
// With `on_host` the states stay where they are, in the host's memory, and its cores make the new ones there. What they
// need of the device is stored, and what becomes state on the device is loaded:
//
//   %p, %m, %v, %low = adamw(@w, @w/grad, @w/m, @w/v, %lr, …) {low="bf16"}
//                                   ↓
//   %lr.store = store(%lr) {tier=1} …                             once for all pieces of all states
//   for each piece [a, b):   %g = store(rows(@w/grad, a, b)) {tier=1}
//   for each piece [a, b):   %p, %m, %v, %low = adamw(rows(@w, a, b), %g, rows(@w/m, a, b), …, %lr.store, …) on_host
//                            %l = load(%low)
//   write set @w = assemble(%p …), @w/m = assemble(%m …), @w/v = assemble(%v …), @w.bf16 = assemble(%l …)
struct PieceOptions {
  int tier = 2;
  std::size_t bytes = std::size_t{4} << 20;  // of a piece in f32; of small tensors a quarter, of huge ones more
  bool on_host = false;                      // elementwise ops, where the tier is the host's memory
};
void cut_in_pieces(ir::Module& module, const std::string& graph, const PieceOptions& options);

// How many rows of a tensor make a piece: whole pages and whole chunks of sum_squares, and at most all rows.
std::int64_t piece_rows(const Shape& shape, std::size_t bytes);

}  // namespace trireme::passes
