#pragma once
#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// How quick an all-reduce is, and what it moved, next to what its algorithm should move.
struct Measurement {
  Algorithm algorithm = Algorithm::native;
  std::size_t bytes = 0;
  double median_us = 0;
  double best_us = 0;
  std::uint64_t steps = 0;  // of the rank that took most
  std::uint64_t sent = 0;   // bytes, of the rank that sent most

  // Bytes that a link between two ranks of a ring carries in a second, whatever the algorithm: 2S(N−1)/N / time.
  double bus_gb_s(int ranks) const { return 2e-3 * static_cast<double>(bytes) * (ranks - 1) / ranks / median_us; }
};

// The laws of the algorithms, for the rank that does most (see algorithms/algorithms.h). Native: as Counters say.
struct Law {
  std::uint64_t steps = 0;
  std::uint64_t sent = 0;
};
Law law_of(TransportKind transport, Algorithm algorithm, std::size_t bytes, std::size_t element, int ranks);

struct MeasureOptions {
  int batches = 15;               // of which the median counts
  double batch_seconds = 1e-3;    // calls are repeated to fill this: one call alone is too short to time
  std::size_t memory = 8U << 30;  // bytes of one call over all ranks: more is not attempted
};

// Gives the calling thread, one of `ranks`, a core of its own if there are enough, as mpirun does with its processes.
void bind_to_core(int rank, int ranks);

// Collective. f32 sums, in place, back to back within a batch.
Measurement measure_all_reduce(Communicator& comm, Algorithm algorithm, std::size_t bytes,
                               const MeasureOptions& options = {});
// Microseconds in which `ranks` threads at once read and write `bytes` of their own in place, by the core that is
// quickest at its best: no all-reduce is quicker. In one, every rank's `bytes` are read at least once and written at
// least once, which is as much for each core; here the lines that are written have just been read, each core has its
// own, in the nearest cache that holds them, and nobody waits for anybody.
double measure_in_place(int ranks, std::size_t bytes, const MeasureOptions& options = {});

}  // namespace trireme::comm
