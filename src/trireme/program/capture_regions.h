#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// Finds the runs of instructions that an accelerator captures once and then replays: everything between two
// instructions that need the host, if it is worth it. Collectives need the host, since ranks meet there, and so does
// what stands between them on their stream. A region ends before an instruction that waits for one of these, so that
// what comes before that instruction does not wait.
//
//   0 … 57   captured
//   58       all_reduce
//   59 … 90  captured, waits for 58
//
// On the CPU nothing is captured.
void find_capture_regions(Program& program);

// Streams whose work is never captured, so that a region neither waits for them nor holds them up: those of collectives
// and of messages between ranks. A replay starts when the other streams have done what comes before it, and they go on
// when all of it is done.
constexpr bool is_between_ranks(std::int32_t stream) {
  return stream == kCommStream || stream == kReduceStream ||
         (stream >= kSendActivationStream && stream <= kReceiveGradientStream);
}

// Throws unless the program's regions are such, naming the instructions.
void verify_capture_regions(const Program& program);

}  // namespace trireme::program
