#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// The graph that sums the gradients of parameters which several stages have; it runs before the update.
inline constexpr const char* kTies = "ties";

// Leaves of a module what one stage of a pipeline does. Nodes have the numbers of their parts (passes/stage.h); stage i
// of p has the parts i, p + i, 2p + i, …
//
//   %b = relu(%a)                      stage 0:  %b = relu(%a)
//   %c = matmul(%b, @w) stage=1                  %s = send(%b) {from=0, to=1}
//   …
//   %db = matmul(%dc, @w) stage=1      stage 1:  %b = receive() {from=0, to=1}
//                                                %c = matmul(%b, @w)
//
// A value that a later part reads is sent with the forward phase, one that an earlier part reads with the gradients;
// where that is not a neighbour, the parts between pass it on. A state goes to the stages that use it. What the update
// knows of the whole step (the loss and the norm of all gradients) is summed over the stages; a parameter that several
// stages have is counted by the first of them, and the graph `ties` sums its gradient over them. Outputs of other
// graphs are the same on all stages.
//
// Nodes have the numbers of their chunks afterwards: part c is chunk c / p of its stage.
//
// Comes after partition: what is sent is a rank's own shard, and its peer has the same place along all other axes.
class Split : public Pass {
 public:
  struct Options {
    int stages = 1;
    int stage = 0;
    int parts = 1;
    bool asynchronous = false;  // a stage's update knows its own gradients alone, and the last stage's the loss
  };
  explicit Split(Options options) : options_(options) {}
  std::string name() const override { return "split"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
