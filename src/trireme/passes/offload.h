#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "trireme/passes/cost_rates.h"
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
// Weights and optimizer states stay there, and are loaded where they are used. Updates, start values and derived copies
// are made in pieces (see passes/pieces.h), so that no more than a few of them are on the device, or, updates, none at
// all where the host's cores make them. Gradients follow when weights and optimizer states both leave: lowering adds
// them up there.
//
// When copies start and how long a buffer waits for one is decided by the lowering (program/copies.h).
class Offload : public Pass {
 public:
  enum class Policy : std::uint8_t {
    all,
    conv,     // only what convolutions read
    dynamic,  // those whose copies the rates say the computation hides, or as many of the best as `most` says
  };
  struct Options {
    bool activations = false;
    bool weights = false;
    bool optimizer = false;       // and the f32 masters of weights that are used in low precision
    Policy policy = Policy::all;  // of activations
    // dynamic: how many leave. Those that are hidden come first, then those that cost the least time for their worth.
    std::optional<std::size_t> most = {};
    // Of weights and optimizer states: the parameters whose states leave, the first of them; nothing: all.
    std::optional<std::size_t> most_parameters = {};
    int tier = 2;
    bool update_on_host = false;                   // the host's cores update the states that are in its memory (tier 1)
    std::size_t smallest = std::size_t{64} << 10;  // smaller ones would cost a request each and save little
    std::size_t piece = std::size_t{4} << 20;
    CostRates rates = {};
  };
  explicit Offload(Options options) : options_(options) {}
  std::string name() const override { return "offload"; }
  // Refuses the policy conv for a graph without convolutions.
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

}  // namespace trireme::passes
