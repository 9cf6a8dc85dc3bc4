#pragma once
#include <string>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Makes products in parts along the batch, so that the collectives of tensor parallelism next to them overlap with
// them: the first part of what is gathered is multiplied while the second one is gathered, and the first part of a
// product is summed while the second one is computed.
//
//   %x = all_gather(%own)                 %x0 = all_gather(rows(%own, 0, 4))
//   %y = matmul(%x, @w)                   %x1 = all_gather(rows(%own, 4, 8))
//                                   →     %y0 = matmul(%x0, @w)
//                                         %y1 = matmul(%x1, @w)
//                                         %x = assemble(%x0, %x1), %y = assemble(%y0, %y1)
//
//   %h = matmul(%a, @v)                   %h0 = matmul(rows(%a, 0, 4), @v)
//   %z = reduce_scatter(%h)         →     %z0 = reduce_scatter(%h0)
//                                         %h1 = matmul(rows(%a, 4, 8), @v)
//                                         %z1 = reduce_scatter(%h1)
//                                         %z = assemble(%z0, %z1)
//
// The same holds of all-reduces, without sequence parallelism. Nothing is copied: parts are made where they belong.
// Every element is computed as before; only a sum over ranks may add in another order.
//
// Comes last: Bucket would join the parts of collectives again, and the views are no values that other passes know.
class AsyncTp : public Pass {
 public:
  struct Options {
    std::string axis;        // of the mesh
    std::int64_t parts = 4;  // at most; as many as divide the rows of a micro-batch
    bool partial = false;    // one stage of several, which may have none
    std::string graph = "micro";
  };
  explicit AsyncTp(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "async-tp"; }
  // Refuses when no product can be made in parts.
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
