#pragma once
#include <cstddef>
#include <vector>

#include "trireme/compiler/compiled.h"

namespace trireme::compiler {

// Part of a checkpoint: not what every step makes anew, nor what derives from another state.
inline bool is_saved(const ir::State& state) { return state.saved && !state.step_local && state.derived_from.empty(); }

// What a rank writes of a state of its role: rows that it stores, or one empty slice of a state without elements. Of
// the ranks that store the same rows each writes an equal share of them; nothing: others write all of it.
std::vector<ir::StoredRows> saved_rows(const Compiled& compiled, int rank, ir::StateId state);

// Staging that holds all that one of `ranks` ranks of a module saves, so that a checkpoint never keeps a step waiting
// for the disk.
std::size_t whole_staging(const ir::Module& module, int ranks);

}  // namespace trireme::compiler
