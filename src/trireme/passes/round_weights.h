#pragma once
#include "trireme/passes/quantize_weights.h"

namespace trireme::passes {

// Training for weights that will be stored as codes: the forward phase reads each of them rounded to the codes that it
// would get, with scales from its present elements; gradients go straight through to the parameter, which keeps all its
// bits.
//
//   %y = matmul(%x, @w) {trans_b}      →      %r = round_to_codes(@w) {bits=4, split=1}
//                                             %y = matmul(%x, %r) {trans_b}
//
// Before precision and autodiff, in the graphs that train and evaluate.
class RoundWeights : public Pass {
 public:
  explicit RoundWeights(QuantizeWeights::Options options) : options_(std::move(options)) {}
  std::string name() const override { return "round-weights"; }
  void run(ir::Module& module) const override;

 private:
  QuantizeWeights::Options options_;
};

}  // namespace trireme::passes
