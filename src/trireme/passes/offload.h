#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "trireme/cost/rates.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Keeps tensors in a slower memory tier while nobody needs them.
//
// Activations that the gradients read leave when they are made and come back for the first gradient that reads them:
//
//   %a = relu(%u)                               %a = relu(%u)
//   %y = matmul(%a, @w)                 →       %a.store = store(%a) {tier=2}
//   …                                           %y = matmul(%a, @w)
//   %dw = matmul(%a, %dy, trans_a)              …
//                                               %a.load = load(%a.store)
//                                               %dw = matmul(%a.load, %dy, trans_a)
//
// States stay there, and are loaded where they are used. Updates, start values and derived copies are made in pieces
// (see passes/pieces.h), so that no more than a few of them are on the device, or, updates, none at all where the
// host's cores make them. Gradients that are offloaded are summed there by the lowering.
//
// Which values and states are offloaded is decided before (planner/offload_policy.h); when copies start and how long a
// buffer waits for one is decided by the lowering (program/copies.h).
class Offload : public Pass {
 public:
  struct Options {
    std::vector<std::string> activations = {};  // values that the gradients read, by name
    std::vector<std::string> states = {};       // by name
    bool partial = false;                       // of a role, to which not all of the names belong
    int tier = 2;
    bool update_on_host = false;  // the host's cores update the states that are in its memory (tier 1)
    std::size_t piece = std::size_t{4} << 20;
    cost::Rates rates = {};  // a state that is not read for long is loaded again rather than kept
  };
  explicit Offload(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "offload"; }
  // Refuses names that the module does not have.
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

}  // namespace trireme::passes
