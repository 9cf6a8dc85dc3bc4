#pragma once
#include <cstddef>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Lets collectives of the same kind go together, so that small tensors do not pay for a message each:
//
//   %a = all_reduce(@w2/grad)                    %a, %b = all_reduce(@w2/grad, @w1/grad)
//   %b = all_reduce(@w1/grad)              →     %c = all_reduce(@w0/grad)
//   %c = all_reduce(@w0/grad)
//
// A bucket is closed when it has so many bytes. Sums of gradients are taken in the order in which the backward pass
// finishes them, so that a bucket can leave while the rest is still computed (program/collectives.h). What is gathered
// right before its use stays in smaller buckets: it is there to be freed again.
class Bucket : public Pass {
 public:
  struct Options {
    std::size_t bytes = std::size_t{25} << 20;
    std::size_t gathered_for_use = std::size_t{1} << 20;
  };
  explicit Bucket(Options options) : options_(options) {}
  std::string name() const override { return "bucket"; }
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

}  // namespace trireme::passes
