#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Lets products of f32 tensors (linear layers, convolutions, attention) round their operands to tf32 (10 bits of
// fraction, f32's range) where the device has units for it; sums stay f32. Which ops can is theirs to say: they have an
// attribute `tf32`. After autodiff, so that it is true of gradients too.
//
//   %y = matmul(%x, @w)      f32[64,10]      →      %y = matmul(%x, @w) tf32=true
class Tf32 : public Pass {
 public:
  std::string name() const override { return "tf32"; }
  void run(ir::Module& module) const override;
};

}  // namespace trireme::passes
