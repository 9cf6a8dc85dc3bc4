#pragma once
#include <cstddef>

#include "trireme/ir/graph.h"

namespace trireme::train {

// Part of a checkpoint: not what every step makes anew, nor what derives from another state.
inline bool is_saved(const ir::State& state) { return state.saved && !state.step_local && state.derived_from.empty(); }

// What rank `number` of `ranks` saves of a state: its own part, or an equal share of the rows of what all ranks have.
// The rows are those of Shape::as_rows; a share may be empty.
struct SavedRows {
  Shape start;
  Shape extent;
};
SavedRows saved_rows(const ir::State& state, int number, int ranks);

// Staging that holds all that one of `ranks` with the same state saves, so that a checkpoint never keeps a step waiting
// for the disk.
std::size_t whole_staging(const ir::Module& module, int ranks);

}  // namespace trireme::train
