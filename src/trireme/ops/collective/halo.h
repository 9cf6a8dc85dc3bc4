#pragma once
#include <string_view>
#include <vector>

#include "trireme/ir/op_def.h"
#include "trireme/ir/slice.h"

// A dimension that the ranks along a mesh axis have in slices of true, unequal extents, of which each needs some more:
// the edges of its neighbours' slices, or those of ranks beyond them where a slice is smaller than what is needed.
//
//   have      0 1 2 | 3 4 5 | 6 7 8 9
//   need      0 1 2 3
//                 2   3 4 5   6
//                         5   6 7 8 9
//
// The attributes are the same on all ranks but for `place`: axis, parts, the dimension `dim`, have = [first of each
// rank's slice …, end], need = [first, last of each rank …], and the rank's own place, for which its program is made.
namespace trireme::ops {

inline constexpr std::string_view kHaloExchange = "halo_exchange";
inline constexpr std::string_view kHaloReduce = "halo_reduce";

// halo_exchange(x) → of dimension `dim` the range that the rank needs: its own part of it copied, the rest received.
// Where every rank needs everything it gathers slices of unequal extents.
ir::OpDef halo_exchange_def();
// halo_reduce(x), whose dimension `dim` is the range that the rank needs → the rank's own slice, of which every element
// is the sum of what the ranks have of it: the transpose of halo_exchange. What nobody needs is 0.
ir::OpDef halo_reduce_def();

inline bool is_halo(const ir::OpDef& op) { return op.name == kHaloExchange || op.name == kHaloReduce; }

// What a rank exchanges with the others.
struct Halo {
  int dim = 0;
  int place = 0;
  std::vector<ir::Range> have;  // by rank
  std::vector<ir::Range> need;

  explicit Halo(const ir::Attributes& attributes);
  Halo(int d, int p, std::vector<ir::Range> all_have, std::vector<ir::Range> all_need)
      : dim(d), place(p), have(std::move(all_have)), need(std::move(all_need)) {}

  int ranks() const { return static_cast<int>(have.size()); }
  const ir::Range& own() const { return have[static_cast<std::size_t>(place)]; }
  const ir::Range& needed() const { return need[static_cast<std::size_t>(place)]; }
  // The range that one rank has and another needs.
  ir::Range between(int has, int needs) const {
    return ir::overlap(have[static_cast<std::size_t>(has)], need[static_cast<std::size_t>(needs)]);
  }
  // Rows that leave this rank, and that come to it, in a halo_exchange; the other way round in a halo_reduce.
  std::int64_t rows_given() const;
  std::int64_t rows_taken() const;
  // Whether each rank needs what it has, and nothing else; whether each has all that it needs.
  bool same() const { return have == need; }
  bool local() const;

  ir::Attributes attributes(const std::string& axis) const;
};

// The two messages between this rank and a peer. The ranges count from the start of the whole dimension, and `out_at`
// and `in_at` are the offsets of the packed bytes in the scratch of the op.
struct HaloMessages {
  int peer = 0;
  ir::Range out;
  ir::Range in;
  std::size_t out_at = 0;
  std::size_t in_at = 0;
};
// The messages of a halo_exchange or, with `reduces`, of a halo_reduce. One element of the dimension has `row_bytes`.
std::vector<HaloMessages> halo_messages(const Halo& halo, bool reduces, std::size_t row_bytes);
// Bytes of scratch that these messages need.
std::size_t halo_scratch(const std::vector<HaloMessages>& messages, std::size_t row_bytes);
// Bytes of x for one element of dimension `dim`, which must not be empty.
std::size_t halo_row_bytes(const TensorType& x, int dim);

}  // namespace trireme::ops
