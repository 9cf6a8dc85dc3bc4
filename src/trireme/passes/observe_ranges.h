#pragma once
#include "trireme/passes/quantize_weights.h"

namespace trireme::passes {

// Finds how large the inputs of linear layers are: for each weight that would be stored as codes, a state `w/range` to
// which every run of the graph raises max|x| over its rows.
//
//   %y = matmul(%x, @w) {trans_b}      →      %y = matmul(%x, @w) {trans_b}
//                                             %r = largest_magnitude(%x, @w/range)
//                                             write @w/range = %r
//
// Before precision, in f32.
class ObserveRanges : public Pass {
 public:
  struct Options {
    QuantizeWeights::Options weights;
    std::string graph = "eval";
  };
  explicit ObserveRanges(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "observe-ranges"; }
  void run(ir::Module& module) const override;

  static std::string state_of(const std::string& weight) { return weight + "/range"; }

 private:
  Options options_;
};

}  // namespace trireme::passes
