#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
// States stay there. Each is loaded for its first reader and kept for the others, but for those for which it is to be
// loaded again. Updates, start values and derived copies are made in pieces
// (see passes/pieces.h), so that no more than a few of them are on the device, or, updates, none at all where the
// host's cores make them. Gradients that are offloaded are summed there by the lowering.
//
// Which values and states are offloaded, and which are loaded again, is decided before (planner/offload_policy.h); when
// copies start and how long a buffer waits for one is decided by the lowering (program/copies.h).
class Offload : public Pass {
 public:
  struct Options {
    std::vector<std::string> activations = {};  // values that the gradients read, by name
    std::vector<std::string> states = {};       // by name
    std::vector<std::string> reloads = {};      // "wte.weight before head.logits", as reload_name makes them
    bool partial = false;                       // of a role, to which not all of the names belong
    int tier = 2;
    bool update_on_host = false;  // the host's cores update the states that are in its memory (tier 1)
    std::size_t piece = std::size_t{4} << 20;
  };
  explicit Offload(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "offload"; }
  // Refuses names that the module does not have, and reloads of what is not offloaded.
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

// That a state is loaded again for what makes a value, and not kept since the reader before.
std::string reload_name(std::string_view state, std::string_view value);

// Where a graph reads states of another tier, in its order; `states`, by name, are about to go there. A node that reads
// one twice is named once. Nothing of a graph that works in pieces.
struct OffloadedRead {
  std::size_t node;
  ir::ValueId state;
};
std::vector<OffloadedRead> offloaded_reads(const ir::Module& module, const ir::Graph& graph,
                                           std::span<const std::string> states);

}  // namespace trireme::passes
