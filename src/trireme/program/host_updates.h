#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// Lets an update on the host's cores begin early, overlapped with the accelerator's work. Comes with each launch on the
// host where its graph has it, behind the stores that it reads and before the loads of what it makes.
//
//   compute   dw₂ ── dw₁ ── dw₀ ── clip ── adamw of states on the device
//   store        └ dw₂ ─┴ dw₁ ─┴ dw₀ └ clip
//   host                                 └ adamw₀ ── adamw₁ ── adamw₂
//   load                                         └ w₀ ─────┴ w₁ ─────┴ w₂
//
// Such stores, launches and loads move up to right behind the last instruction that they must follow, and so does what
// the update computes of a value that leaves and of nothing else (its square): a gradient's memory on the device is
// free once it has left. What moves into the backward pass becomes part of it.
void start_host_updates_early(Program& program);

// When every instruction has its place and its stream: launches on the host start after the compute instruction before
// them and after whatever touches the same bytes before them, and what touches them later starts after the launches.
void order_host_updates(Program& program);

}  // namespace trireme::program
