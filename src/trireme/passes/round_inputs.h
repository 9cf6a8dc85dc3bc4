#pragma once
#include <string>
#include <vector>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Linear layers whose weights are codes read integers too: inputs are rounded to 8 bits with a scale per layer, which
// was found on other rows (passes/observe_ranges.h) and is a state.
//
//   %y = quantized_linear(%x, @w/codes, @w/scale, @b)   →   %q = round_to_int8(%x, @w/input)
//                                                           %y = int8_linear(%q, @w/codes, @w/scale, @w/input, @b)
//
// Inputs that several layers read are rounded once for each. The output layer, whose small differences decide between
// tokens, is left as it is. After quantize-weights, before precision.
class RoundInputs : public Pass {
 public:
  struct Options {
    std::vector<std::string> graphs = {};
    DType to = DType::f32;  // what the layers make
  };
  explicit RoundInputs(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "round-inputs"; }
  void run(ir::Module& module) const override;

  // The scale of what the layer of this weight reads.
  static std::string state_of(const std::string& weight) { return weight + "/input"; }

 private:
  Options options_;
};

}  // namespace trireme::passes
