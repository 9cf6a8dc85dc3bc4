#pragma once
#include <cstddef>

#include "trireme/program/program.h"

namespace trireme::program {

struct WeightGradientOptions {
  bool overlap = false;  // off: on the compute stream, where they stand
  // How many of them the compute stream may be ahead of. What they read is kept for so long.
  std::size_t lag = 4;
};

// Gives the launches that make weights' gradients a stream of their own: nobody needs them before the update, and a
// device that has more units than one launch fills does two at once.
//
//   compute   dx₂ ── dx₁ ─────── dx₀ ── … ── update
//   gradient     └ dw₂ ──┴ dw₁ ──────── dw₀ ───┘
void overlap_weight_gradients(Program& program, const WeightGradientOptions& options);

}  // namespace trireme::program
