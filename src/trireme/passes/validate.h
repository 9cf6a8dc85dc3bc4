#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// The last look before lowering, at what no single pass can see: every trained parameter has a gradient and is set by
// the update; every derived copy is rewritten with its source; every step-local sum that is read is written; nothing
// outside the update sets a saved state.
class Validate : public Pass {
 public:
  std::string name() const override { return "validate"; }
  void run(ir::Module& module) const override;
};

}  // namespace trireme::passes
