#pragma once
#include <string>

#include "trireme/ir/axes.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Keeps one copy of what every rank along an axis would keep (ZeRO; FSDP): each rank has a part of every tensor, some
// of its rows (Shape::as_rows).
//
//   stage 1   optimizer states, and the f32 masters of weights that are used in low precision:
//               %g = all_reduce(@w/grad)                   %g = reduce_scatter(@w/grad)      the own part of the sum
//               %p, … = adamw(@w, %g, @m, @v, …)     →     %p, … = adamw(own_rows(@w), %g, @m, @v, …)
//               write set @w = %p                          write set @w = all_gather(%p)
//   stage 2   and gradients: every micro-batch adds its part of the sum,
//               write add @w/grad = %dw              →     write add @w/grad = reduce_scatter(%dw)
//   stage 3   and weights, which are gathered before the forward and before the backward pass use them:
//               %y = matmul(%x, @w)                  →     %y = matmul(%x, all_gather(@w))
//
// As many bytes move as without it (stage 3: half as much again). The norm of the gradients is summed over the parts. A
// tensor whose rows do not divide is cut in equal parts that reach beyond its end, where they hold zeros.
//
// With `whole_sums` a rank's terms of a gradient stay whole, whatever the stage, and so does their sum, of which each
// rank takes its part where it updates:
//               %g = …                                     %g = …                            what sums compressed terms
//               %p, … = adamw(@w, %g, @m, @v, …)     →     %p, … = adamw(own_rows(@w), own_rows(%g), @m, @v, …)
// Optimizer states that more than an element's update reads stay whole as well.
//
// Comes after the passes that look at what is saved for the backward pass, to which gathered weights are of no concern,
// and after those that sum gradients in ways of their own.
class Zero : public Pass {
 public:
  struct Options {
    int stage = 1;
    std::string axis = ir::kDataAxis;
    bool whole_sums = false;
  };
  explicit Zero(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "zero"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
