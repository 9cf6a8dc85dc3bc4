#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Linear layers in eight-bit floats: the products of 16-bit operands in a training step's forward and backward phases
// read codes with one scale for each tensor, which is taken from its largest element just before (current scaling).
// Weights and activations are e4m3, gradients e5m2; sums are f32, results and everything else stay 16 bits. The master
// weights, the update and evaluation are as without it.
//
//   %y = matmul(%x, @w) {trans_b}      →      %sx = fp8_scale(%x)
//                                             %qx, %tx = quantize_fp8(%x, %sx) {form=both}
//                                             %sw, %qw = … the same of @w, as rows
//                                             %y = matmul_fp8(%qx, %qw, %sx, %sw)
//
// A product whose sizes are not multiples of 16 is left alone, and so are the embedding, which is another op, and the
// output layer, whose result is what the loss reads. Activations and gradients are written both ways round at once,
// since the weight's gradient reads the transposed ones: one byte an element is saved for it, not the 16 bits. Weights
// are quantized again in the backward phase. After autodiff, partitioning (each rank has its own scales) and before
// fusion.
class Fp8 : public Pass {
 public:
  std::string name() const override { return "fp8"; }
  void run(ir::Module& module) const override;

  // Whether a model has linear layers that it is for, whatever their sizes.
  static bool is_for(const ir::Module& module);
};

}  // namespace trireme::passes
