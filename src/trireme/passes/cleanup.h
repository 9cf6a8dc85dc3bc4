#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Removes nodes whose results nobody uses; false: there are none. Messages and collectives of a pipeline's stages stay,
// read or not: other stages take part.
bool remove_unread(ir::Graph& graph);

// Removes nodes whose results nobody uses, and merges nodes that compute the same thing: same op, operands, attributes,
// phase and stage. Recomputed nodes (`barrier`) are left alone, and so are two whose results become states: each is
// made where its state lies.
//
//   %a = relu(%x)                    %a = relu(%x)
//   %b = relu(%x)             →      %c = add(%a, %a)
//   %c = add(%a, %b)
//   %d = gelu(%x)      (unused)
class CleanUp : public Pass {
 public:
  std::string name() const override { return "clean-up"; }
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }
};

}  // namespace trireme::passes
