#pragma once
#include "trireme/passes/pass.h"
#include "trireme/passes/routes.h"

namespace trireme::passes {

// Makes of graphs whose values have shardings (passes/propagate.h) each rank's local graphs, with collectives where
// ranks must combine or exchange what they have:
//
//   input %x : f32[8,4] [dp,_]                     input %x : f32[4,4] [dp,_]
//   %y = matmul(%x, @w, trans_b) : f32[8,2]        %y = matmul(%x, @w, trans_b) : f32[4,2]
//   …                                        →     …
//   %dw = matmul(%dy, %x, trans_a)                 %dw = matmul(%dy, %x, trans_a)       a term of the sum over dp
//   write add @w/grad = %dw                        write add @w/grad = %dw              and so is the state
//
//   graph update:                                  graph update:
//   %p = adamw(@w, @w/grad, …)                     %g = all_reduce(@w/grad) {axis="dp"}
//                                                  %p = adamw(@w, %g, …)
//
// Each node computes in the way that moves the fewest bytes to it and from it: mesh axes shard its factors as its
// operands or results have them. Where a use wants another sharding than a value has, the value is resharded by the
// cheapest route (passes/routes.h), once for all uses that want the same; sums are taken when something other than a
// sum is made of their terms. What a backward pass needs of a value that was gathered for the forward pass is gathered
// again.
//
// Parameters whose extent does not divide are padded; results are equal to those of one rank. Heights and widths are
// sharded in true extents, so that the graphs are those of ranks at given places along these axes. The graphs of all
// places have the same collectives in the same order.
class Partition : public Pass {
 public:
  struct Options {
    Places places = {};
    bool overlap = false;         // what needs no halo is split off, to be computed while halos are exchanged
    bool own_statistics = false;  // batch norms take the statistics of each rank's own rows
    bool replicas_last = false;   // gradients are summed over the data axis when they are over all others
  };
  explicit Partition(Options options) : options_(std::move(options)) {}
  std::string name() const override { return kName; }
  static constexpr const char* kName = "partition";
  // Refuses what cannot be sharded as the values are, naming the value.
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// The input that tells a rank its place along an axis, "place.dp", i64[], or along several: of "dp+tp", "place.dp-tp".
std::string place_input(const std::string& axes);
// The axes of such an input, outermost first; none: it is another.
std::vector<std::string> axes_of_place(std::string_view input);

}  // namespace trireme::passes
