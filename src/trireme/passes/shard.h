#pragma once
#include <string>
#include <vector>

#include "trireme/ir/partition.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Cuts the graphs over a mesh. From the shardings of a few inputs everything else follows by the ops' factors; what is
// left is each rank's local graph, with collectives where ranks must combine what they have:
//
//   input %x : f32[8,4]                            input %x : f32[4,4] sharding:0="[dp,_]"
//   %y = matmul(%x, @w, trans_b) : f32[8,2]        %y = matmul(%x, @w, trans_b) : f32[4,2]
//   …                                        →     …
//   %dw = matmul(%dy, %x, trans_a)                 %dw = matmul(%dy, %x, trans_a)       a term of the sum over dp
//   write add @w/grad = %dw                        write add @w/grad = %dw              and so is the state
//
//   graph update:                                  graph update:
//   %p = adamw(@w, @w/grad, …)                     %g = all_reduce(@w/grad) {axis="dp"}
//                                                  %p = adamw(@w, %g, …)
//
// Data parallelism is this pass with the batch cut over `dp`, and nothing else.
class Shard : public Pass {
 public:
  // Inputs of this name are cut along their first dimension.
  struct Seed {
    std::string input;
    std::string axis;
  };
  struct Options {
    ir::Mesh mesh;
    std::vector<Seed> seeds;
    std::vector<std::string> graphs;  // in which the seeds hold
  };
  explicit Shard(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "shard"; }
  // Refuses what cannot be cut as the seeds ask, naming the value.
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
