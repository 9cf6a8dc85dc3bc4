#pragma once
#include <cstddef>

#include "trireme/ir/graph.h"

namespace trireme::train {

// Part of a checkpoint: not what every step makes anew, nor what derives from another state.
inline bool is_saved(const ir::State& state) { return state.saved && !state.step_local && state.derived_from.empty(); }

// Staging that holds all of a module's saved state, so that a checkpoint never keeps a step waiting for the disk.
std::size_t whole_staging(const ir::Module& module);

}  // namespace trireme::train
