#pragma once
#include <span>

#include "trireme/comm/transport.h"

namespace trireme::comm {

// The scratch memory that a collective needs, for a plan made before there is any communicator: only the counts of
// segments and cuts are read, not their pointers. `automatic` is what it means without measurements.
std::size_t scratch_bytes(TransportKind transport, Algorithm algorithm, std::span<const Segment> segments, DType dtype,
                          int ranks);  // all_reduce
std::size_t scratch_bytes(TransportKind transport, Collective collective, Algorithm algorithm,
                          std::span<const Cut> cuts, DType dtype, int ranks);  // reduce_scatter, all_gather

// What the communicators of one group of ranks keep in this process for messages on their way and small collectives,
// all of its ranks together. Over MPI that is MPI's own.
std::size_t group_bytes(TransportKind transport, int ranks);

// Packed buckets begin at the front of the scratch; what the algorithm itself needs follows at the next such boundary.
inline constexpr std::size_t kScratchAlignment = 64;
inline std::size_t scratch_aligned(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

}  // namespace trireme::comm
