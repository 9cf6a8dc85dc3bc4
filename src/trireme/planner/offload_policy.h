#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/cost/rates.h"
#include "trireme/ir/graph.h"

namespace trireme::planner {

// What a configuration wants offloaded; the functions below name the values and states that this means for a module
// which is complete but for the pass that offloads them (passes/offload.h).
struct OffloadPolicy {
  enum class Which : std::uint8_t {
    all,
    conv,     // only what convolutions read
    dynamic,  // those whose copies the rates say the computation hides, or as many of the best as are asked for
  };
  bool activations = false;
  bool weights = false;
  bool optimizer = false;                        // and the f32 masters of weights that are used in low precision
  bool gradients = true;                         // with both of them; not where all of a gradient is compressed at once
  Which which = Which::all;                      // of activations
  std::size_t smallest = std::size_t{64} << 10;  // bytes: smaller ones would cost a request each and save little
  cost::Rates rates = {};
};

// Values that the gradients read, in the order they are made. `count` (dynamic): how many; those whose copies are
// hidden come first, then those that cost the least time for their worth. A graph without convolutions has none for
// `conv`, as a stage of a pipeline may be.
std::vector<std::string> activations_to_offload(const ir::Graph& graph, const OffloadPolicy& policy,
                                                std::optional<std::size_t> count = {});

// Refuses `conv` for a whole model without convolutions.
void check_offload_policy(const ir::Graph& graph, const OffloadPolicy& policy);

// States of the first `parameters` parameters (nothing: of all). Gradients follow where weights and optimizer states
// are both offloaded.
std::vector<std::string> states_to_offload(const ir::Module& module, const OffloadPolicy& policy,
                                           std::optional<std::size_t> parameters = {});

// Of those states, the ones that are not read for so long that loading them again is better than keeping them, and for
// which readers: passes::reload_name, in the order of the graphs.
std::vector<std::string> states_to_reload(const ir::Module& module, std::span<const std::string> states,
                                          const cost::Rates& rates);

}  // namespace trireme::planner
