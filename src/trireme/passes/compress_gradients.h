#pragma once
#include <cstdint>
#include <string>

#include "trireme/ir/axes.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Compresses gradients before they are communicated: what the ranks along an axis sum up is compressed first, and each
// rank keeps what that lost, to add it to the next step's (error feedback). Instead of %g = all_reduce(@w/grad), with N
// ranks and a state @w/residual that each of them has for itself:
//
//   %packed, %rest = pack(@w/grad, @w/residual) {parts=N}     N chunks, one for each rank
//   %theirs = all_to_all(%packed)                             my chunk, from everybody
//   %sum = unpack(%theirs) {sum}
//   %back, %lost = pack(%sum, @w/residual_of_sum)             the sum of it, packed again
//   %all = all_gather(%back)
//   %g = unpack(%all)
//   write set @w/residual = select(%finite, %rest, @w/residual) …
//
// The result has the same bits on all ranks, since all of them unpack the same bytes. Everything that looks at
// gradients (the norm, the optimizer) sees %g. Small tensors, where packing is not worth its overhead, are summed as
// before. With a loss scale, residuals are those of the unscaled gradients.
//
// One way alone, packed terms are summed as they are unpacked, and the sum is not packed again: for sums that ranks
// beyond the mesh take, from which something else comes back.
//
//   %packed, %rest = pack(@w/grad, @w/residual);  %g = all_reduce(unpack(%packed))
//
// Comes after Partition, which finds the sums, and before Zero and Bucket.
class CompressGradients : public Pass {
 public:
  enum class Kind {
    bf16,      // each element rounded
    int8,      // 256 elements share a scale
    onebit,    // signs; 256 elements share their mean magnitude; each rank limits the norm of its own terms
    low_rank,  // matrices as products of two thin ones (PowerSGD):
               //   %m = @w/grad + @w/residual;  %p = orthonormalise(all_reduce(%m · @w/basis))
               //   %q = all_reduce(%mᵀ · %p);   %g = %p · %qᵀ;  @w/basis = %q;  @w/residual = %m − %g/N
    largest,   // the largest elements, which wait until they are (Deep Gradient Compression); SGD's momentum is each
               // rank's own, of its terms:
               //   %taken, … = take_largest(@w/grad, @w/own_momentum, @w/unsent, %own_clip)
               //   %g = add_taken(all_gather(%taken));  %p = descend(@w, %g)
    momentum,  // signs of AdamW's momentum instead of the gradients (1-bit Adam); the variance stays as it was:
               //   %m = β1/N · @w/m + (1−β1) · @w/grad;  its sum as above;  %p = descend(@w, %m, @w/v)
  };
  struct Options {
    Kind kind = Kind::onebit;
    double fraction = 0.01;  // largest: of the elements
    std::int64_t rank = 2;   // low_rank
    bool error_feedback = true;
    bool momentum_masking = false;  // largest: what is sent starts again without momentum
    // Steps that come before, for which the update of the graph `warm_update` is kept (largest, momentum): it sums as
    // it was, or, for largest, takes every element.
    std::int64_t warmup = 0;
    std::int64_t updates_per_step = 1;  // momentum: that a variance has seen
    bool stages_apart = false;          // each stage of a pipeline limits the norm of its own gradients
    bool one_way = false;
    std::string axis = ir::kDataAxis;
  };
  explicit CompressGradients(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "compress-gradients"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// The update of the first steps, where they have one of their own.
inline constexpr const char* kWarmUpdate = "warm_update";

// Whether a state is of the compression alone: of no use to another kind of it, nor to another number of ranks.
bool is_compression_state(const ir::State& state);

}  // namespace trireme::passes
