#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// Something that a run keeps in memory and its memory plan does not have.
struct Outside {
  std::string name;
  std::string what;
  std::uint64_t bytes = 0;    // predicted, at most
  bool when_resumed = false;  // only then
  bool on_gpu = false;        // in the GPU's memory; else in the host's
  bool of_files = false;      // mapped files, which the system drops when memory is short
  bool at_first = false;      // only before the first step of a first run, and given back
};

// What the `ranks` from `first` on take, as threads of one process: its batches, data, trace, programs and threads, and
// what program and libraries take for themselves. The process's resident size is at most its arenas and the sum of it.
// Of a GPU's own memory it has what driver and libraries take there.
std::vector<Outside> outside(const Config& config, const data::Data& data, const Compiled& compiled, int first,
                             int ranks, int threads);
// Of ranks that are processes of their own: the first of those whose process takes most, with its arena.
int largest_process(const Config& config, const data::Data& data, const Compiled& compiled, int threads);
// In the host's memory, of a run that is resumed, or of one that is not.
std::uint64_t outside_bytes(const std::vector<Outside>& all, bool resumed);
// Of that what there must be room for: without mapped files.
std::uint64_t needed_bytes(const std::vector<Outside>& all);

// What it takes of a GPU to try the algorithms of its libraries for the launches of a program, one launch after
// another: random operands of the largest, a second result to compare with, scratch, and memory that the cache is
// flushed with.
std::uint64_t search_bytes(const program::Program& program);

// Ranks that are threads, at most; more are processes.
inline constexpr int kMaxThreadRanks = 64;

// The spans that a trace has room for.
inline constexpr std::size_t kTraceSpans = 2'000'000;

}  // namespace trireme::train
