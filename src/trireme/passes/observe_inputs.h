#pragma once
#include "trireme/passes/quantize_weights.h"

namespace trireme::passes {

// Adds up the second moments of what linear layers read: for each weight that would be stored as codes, a state
// `w/inputs` [k,k] to which every run of the graph adds xᵀ·x over its rows.
//
//   %y = matmul(%x, @w) {trans_b}      →      %y = matmul(%x, @w) {trans_b}
//                                             %s = matmul(%x, %x, aux = @w/inputs) {trans_a, add}
//                                             write @w/inputs = %s
//
// Before precision, in f32.
class ObserveInputs : public Pass {
 public:
  struct Options {
    QuantizeWeights::Options weights;
    std::string graph = "eval";
  };
  explicit ObserveInputs(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "observe-inputs"; }
  void run(ir::Module& module) const override;

  static std::string state_of(const std::string& weight) { return weight + "/inputs"; }

 private:
  Options options_;
};

}  // namespace trireme::passes
