#pragma once
#include <cstddef>

#include "trireme/cost/rates.h"
#include "trireme/program/program.h"

namespace trireme::program {

// Seconds on the compute stream; 0 for copies between tiers and for launches on the host.
double compute_seconds(const Instruction& instruction, const cost::Rates& rates);

struct CopyOptions {
  cost::Rates rates = {};
  // Bytes that may be on their way in each direction at once, in addition to the largest copy: this many, or a
  // sixteenth of all that the other tiers hold where that is less.
  std::size_t window = std::size_t{16} << 20;
};

// Gives the copies between tiers their places and their order relative to the computation. Comes with each store right
// behind what makes its source and each load right before the first instruction that reads it.
//
//   compute   up ──────── act ────────────── … ── grad
//   store        └ store ────────┐ (up's bytes are free from here on)
//   load                         ·      load ──────┘
//
// Loads move forward: as late as the rates say they may start and still be done in time, in their order, no earlier
// than the window allows nor than the store they read from. A store is waited for (its source is free then) by the
// first instruction that the rates say starts after it, or earlier where the window is full. Every copy starts after
// the compute instruction before it; the first reader of a load waits for it.
//
// Launches on the host stay where they are, and what they make is loaded at once: such loads stay behind them, and need
// no reader. See program/host_updates.h for what waits for what there.
// `collectives_overlap`: they will leave the compute stream (collectives.h), so that no copy starts after one.
void schedule_copies(Program& program, const CopyOptions& options, bool collectives_overlap = false);

}  // namespace trireme::program
