#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Turns the forward graph of a micro-batch into one joint graph: forward, input gradients, weight gradients. Every
// trained parameter gets a gradient state, and the graph adds its contribution to it:
//
//   graph micro {                                        graph micro {
//     %y = matmul(%x, @w)                                  %y = matmul(%x, @w)
//     %l = squared_error(%y, %t)                           %l, … = squared_error(%y, %t)
//     write add @loss = %l                         →       %dy = squared_error_grad(…)            input_gradient
//   }                                                      %dw = matmul(%x, %dy, trans_a)         weight_gradient
//                                                          write add @loss = %l
//                                                          write add @w/grad = %dw
//                                                        }
// A node belongs to the weight-gradient phase when nothing but parameters' gradients needs it.
class Autodiff : public Pass {
 public:
  struct Options {
    std::string graph = "micro";
    std::string loss = "loss";  // the accumulated state to differentiate
    // Several micro-batches are summed in f32. A single one keeps the gradients' own type; where more than two of them
    // meet in one parameter, they are summed in f32 too.
    bool f32_gradients = false;
    // What the gradient of the loss itself is: 1, or a scalar state of this name, which is added and starts at 1.
    std::string seed = {};
  };
  explicit Autodiff(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "autodiff"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// "blocks.0.up.weight" → "blocks.0.up.weight/grad"
std::string gradient_name(const std::string& parameter);

}  // namespace trireme::passes
