#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Adds the graphs that fill the state: `init` gives every state variable its start value, a pure function of the seed,
// its name and the element's index; `refresh` rewrites the derived copies (low-precision weights, shadows) after the
// states they come from were set from outside.
class InitialState : public Pass {
 public:
  std::string name() const override { return "initial-state"; }
  void run(ir::Module& module) const override;
};

}  // namespace trireme::passes
