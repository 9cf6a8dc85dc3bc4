#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// Launches weights' gradients later than they come: nobody needs them before the update, so they are what is computed
// while a collective that the backward pass waits for is under way.
//
//   compute   dx₂ ── dw₂ ── dx₁ ···············── norm          dx₂ ── dx₁ ── dw₂ ── norm
//   comm                      └ all_reduce ─────┘        →               └ all_reduce ┘
//
// Comes before collectives have streams. In front of the first instruction that waits for one, the gradients that are
// due are launched, in their order and within their action. At most `kDeferred` of them are behind at any time: what
// they read is kept for so long. Not for programs that copy what they save to other tiers: those want memory before
// time, and which values they copy differs by rank.
//
// Where they go follows from the order of instructions alone and from no sizes, so that the order of all collectives is
// still the same on ranks whose slices differ.
void defer_weight_gradients(Program& program);

inline constexpr std::size_t kDeferred = 4;

}  // namespace trireme::program
