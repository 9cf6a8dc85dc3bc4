#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// What the checker has shown, for people: "1,912 instructions: …".
struct CheckReport {
  std::size_t instructions = 0;
  std::size_t buffers = 0;
  std::size_t conflicts_ordered = 0;  // pairs of accesses to the same bytes, one writing, that were shown to be ordered
};

// Throws, naming the two instructions or buffers, unless
//   - every byte an instruction reads was written before it on every rank: by an earlier instruction or as persistent
//     state; and nothing else was written there since, not even in the same buffer: the value that an operand names is
//     the one that its bytes hold, as lowering has numbered them. An instruction that writes each rank's own shard of a
//     buffer writes no more than that; the whole may be read again when something has written it, such as an
//     all-gather;
//   - any two instructions that touch the same bytes of a tier, one of them writing, are ordered by a stream or an
//     event. Copies to and from the disk and sends to other stages are not ordered by their stream, but by events alone
//     (program/happens_before.h);
//   - every event waited for is recorded, once, and the waits have no cycle;
//   - states lie inside the persistent state of their tier, no two of them share bytes, and no other buffer lies there.
//     They are written with values that lowering declares to be their contents, in whole when the program ends, and
//     hold the last of them then; the memory in which checkpoints are staged is used by none;
//   - only stores and loads reach beyond the device's memory, and what they move to or from the disk are whole pages;
//   - launches on the host touch its memory alone, and have one stream;
//   - every buffer lies aligned inside its tier's memory, what one instruction writes does not overlap, and it writes
//     over its own inputs only where its op works in place, or where a gather or a scatter has the rank's own part of
//     the whole at its place;
//   - what a launch or a collective reads and writes is of the sizes that its op takes and makes, and a copy of one;
//   - collectives and shards are for as many ranks as the mesh has; all collectives of a group are on one stream, and
//     so is what is pushed and pulled;
//   - messages between stages have streams of their own, one for each group and direction, and nothing else is on the
//     streams that are for them;
//   - nothing is pushed after a pull, whose answer may need it, and every key is used once each way;
//   - outputs are written and nothing is written over them.
// What is proved is one run of one program. One copy belongs to two runs, so no program has it: that of a large input
// to a GPU during the run before (runtime/staging.h, where its order is argued). Takes time that grows with the
// instructions and their operands, but for a logarithm.
CheckReport check(const Program& program);

}  // namespace trireme::program
