#pragma once
#include "trireme/core/dtype.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Runs the forward graphs in a low precision by each op's own policy; f32 parameters stay the masters. A parameter that
// an op wants low gets a derived state, rewritten by each update, so that no micro-batch casts it:
//
//   %y = matmul(%x, @w) : f32[4,8]        →     %c = cast(%x) {to="bf16"} : bf16[4,16]
//                                               %y = matmul(%c, @w/bf16) : bf16[4,8]
//
// A graph input that is read in the low precision alone comes in it.
//
// Runs before autodiff, so gradients have the precision of what they belong to.
class LowPrecision : public Pass {
 public:
  struct Options {
    DType low = DType::bf16;
    std::vector<std::string> graphs = {"micro"};  // those that exist are rewritten
  };
  explicit LowPrecision(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "precision"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
