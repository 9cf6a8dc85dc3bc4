#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Keeps what the forward phase saves for the gradients in fewer bytes: in a smaller type, or, of what all ranks along
// an axis have, each its share. The forward phase itself computes with what it has; of a smaller type, the gradients
// read rounded values:
//
//   %h = matmul(%x, @w)                             %h = matmul(%x, @w)
//   %a = relu(%h)                                   %a = relu(%h)
//   …                                               %h.int8, %h.int8:1 = quantize_int8(%h)
//   %dh = relu_grad(%h, %da)          →             …
//                                                   %h.kept = dequantize_int8(%h.int8, %h.int8:1)   input_gradient
//                                                   %dh = relu_grad(%h.kept, %da)
//
// A value is made smaller right after the forward phase last touches it and is expanded once, before its first reader
// in the gradients; between its first and last reader it has its full size again. Left alone: integers; values that an
// op insists on having in f32 (the norms' and attention's statistics); what is written to a state or is an output,
// which lives on anyway; what the last forward node touches, which is read again at once; states and inputs. What
// gradients recompute (barriers) is not saved and is no matter here.
//
// Runs after fusion, which decides what is saved at all. Refuses when nothing can be made smaller.
class CompressActivations : public Pass {
 public:
  enum class Kind {
    bf16,     // f32 values, rounded to nearest
    int8,     // f32, bf16 and f16 values, with a scale for every block of the last dimension
    sharded,  // as they are, a part on each rank along `axis`; gathered for the gradients
  };
  struct Options {
    Kind kind = Kind::bf16;
    std::string graph = "micro";
    std::string axis = {};  // of `sharded`
    bool partial = false;   // one stage of several, which may have nothing to make smaller
  };
  explicit CompressActivations(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "compress-activations"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
