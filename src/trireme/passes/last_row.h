#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Of an output with one result per row of the sequence, only one row is wanted: computes that row alone, from the point
// on where rows no longer look at each other. Which row is a new input `row`, i32 []. What may be cut that way follows
// from the ops' factors.
//
//   %n = layer_norm(%x, …)                                    %r = sequence_slice(%x, %row) dim=1 extent=1
//   %y = matmul(%n, …)            f32[1,64,50257]      →      %n = layer_norm(%r, …)
//   output logits = %y                                        %y = matmul(%n, …)     f32[1,1,50257]
class LastRow : public Pass {
 public:
  struct Options {
    std::vector<std::string> graphs;
    std::string output = "logits";
    int dim = 1;  // of the output: the sequence
  };
  explicit LastRow(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "last-row"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
