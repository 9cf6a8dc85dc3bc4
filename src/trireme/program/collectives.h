#pragma once
#include <cstddef>

#include "trireme/program/program.h"

namespace trireme::program {

struct CollectiveOptions {
  bool overlap = true;  // off: on the compute stream, where they stand
  // Collectives over dp have a stream of their own where there are others too: those of the layers, for which the
  // computation waits, do not queue behind sums of gradients.
  bool own_reductions = false;
  // Bytes of state that may have been gathered ahead of their use, in addition to the largest gather. Of other values
  // one more gather is there ahead of its use, if it is no larger.
  std::size_t ahead = std::size_t{25} << 20;
};

// Gives the collectives streams of their own. Comes with each where its graph has it, on the compute stream, and with
// the scratch that its transport wants as its workspace.
//
//   compute   dw₂ ── dw₁ ── dw₀ ────── update
//   comm         └ reduce ₂ ┴ reduce ₁₀ ─┘
//
// A reduction starts once its last operand is ready. Launches in `update` that only prepare its operands, such as
// packing, move forward with it, and launches between two reductions go on their stream. An all-gather of state starts
// as early as `ahead` allows. The first instruction that reads or writes an operand of a collective waits for it. The
// order of collectives is the order in the program: the same on every rank.
//
// In a stage of a pipeline, sums of gradients start behind the message of their action: another stage waits for that.
void schedule_collectives(Program& program, const CollectiveOptions& options);

}  // namespace trireme::program
