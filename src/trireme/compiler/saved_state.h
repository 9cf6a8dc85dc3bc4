#pragma once
#include <cstddef>
#include <optional>

#include "trireme/compiler/compiled.h"

namespace trireme::compiler {

// Part of a checkpoint: not what every step makes anew, nor what derives from another state.
inline bool is_saved(const ir::State& state) { return state.saved && !state.step_local && state.derived_from.empty(); }

// What a rank writes of a state of its role. Of the ranks that store the same slice each writes an equal share of its
// rows; nothing: others write all of it. A share of a tensor of more than two dimensions is a slice of its rows
// (Shape::as_rows).
std::optional<ir::Slice> saved_slice(const Compiled& compiled, int rank, ir::StateId state);

// Staging that holds all that one of `ranks` ranks of a module saves, so that a checkpoint never keeps a step waiting
// for the disk.
std::size_t whole_staging(const ir::Module& module, int ranks);

}  // namespace trireme::compiler
