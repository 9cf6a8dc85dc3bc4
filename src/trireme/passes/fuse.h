#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Merges neighbours so that a tensor is finished while it is in cache. Never across stages, nor, but for the last of
// these, phases; what is recomputed is merged only with what is recomputed.
//
//   1. activation into matmul                %u = matmul(%x, @w, @b)            %a, %u = matmul(%x, @w, @b)
//                                            %a = gelu(%u)               →                 {activation="gelu"}
//   2. activation gradient into matmul       %d = matmul(%dy, @v)               %e = matmul(%dy, @v, _, %u)
//                                            %e = gelu_grad(%u, %d)      →                 {activation_grad="gelu"}
//   3. residual sum into norm                %s = add(%x, %f)                   %n, …, %s = layer_norm(%x, @w, @b, %f)
//                                            %n, … = layer_norm(%s, …)   →
//   4. residual gradient into norm gradient  %d, … = layer_norm_grad(…)         %t, … = layer_norm_grad(…, %r)
//                                            %t = add(%r, %d)            →
//   5. sum, activation into batch norm       %n, … = batch_norm(%x, …)          %y, … = batch_norm(%x, …, %r)
//                                            %s = add(%n, %r)            →                 {activation="relu"}
//                                            %y = relu(%s)
//   6. the same in its gradient              %t = add(%d, %e)                   %dx, …, %g = batch_norm_grad(…, %d, _,
//   %y,
//                                            %g = relu_grad(%y, %t)      →                                %e)
//                                            {total=true} %dx, … = batch_norm_grad(…, %g)
//   7. two products and their gate          %g = matmul(%x, @w)                %y, %g, %u = gated_linear(%x, @w, @v)
//      (16 bits, where gradients read       %u = matmul(%x, @v)         →
//      gate and up)                         %y = swiglu(%g, %u)
//   8. the gate's gradient                  %d = matmul(%dz, @o)               %dg, %du = gated_linear_grad(%dz, @o,
//                                           %dg, %du = swiglu_grad(     →          %g, %u)
//                                               %g, %u, %d)
//   9. a sum of products                    %d = matmul(%dk, @k)               %d = matmul(%dk, @k)
//                                           %e = matmul(%dv, @v)        →      %s = matmul(%dv, @v, _, %d) {add=true}
//                                           %s = add(%d, %e)
//  10. a bias gradient into that of a norm  %d, … = layer_norm_grad(…)         %d, …, %b = layer_norm_grad(…)
//      (a weight's gradient with an         %b = reduce(%d) {dims=[0,1]}  →              {total="same"}
//      input's: so is a norm's own)
class Fuse : public Pass {
 public:
  struct Options {
    // Gradients read what was saved as it was. Otherwise an activation's gate is taken from the activation itself, not
    // from what a norm would make of its input, where a rounded value may have come to lie on the other side.
    bool saved_exactly = true;
    // Bias gradients go into those of norms (10): where a pass over memory is what costs, on a GPU.
    bool sums_in_norms = true;
  };
  Fuse() = default;
  explicit Fuse(Options options) : options_(options) {}
  std::string name() const override { return "fuse"; }
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

}  // namespace trireme::passes
